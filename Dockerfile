# syntax=docker/dockerfile:1
# Three images from one file: operator, netmon, trainer. `make images` builds them with docker or buildah.
#
# Everything Python comes from requirements.lock; nothing runs as root, and nothing needs to write to its own files.
# What the lock brings is one layer and our own files another, so that a change to ours is a small one.
# A registry mirror with an authority of its own: --secret id=ca,src=/etc/ssl/certs/ca-certificates.crt
ARG BASE=docker.io/library/debian:trixie-slim

FROM ${BASE} AS python
ARG BASE
# Compiled by content: builds that set all files' times alike would else make every compiled file look outdated.
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3 >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* /var/lib/dpkg/*-old /var/log/* \
    && python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.*
LABEL org.opencontainers.image.base.name=${BASE}
ENV PATH=/opt/trimtab/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 HOME=/tmp
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532

# What is needed to install, and never shipped.
FROM python AS build
ARG UV_VERSION
USER root
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv ca-certificates >/dev/null
COPY scripts/in-image /usr/local/bin/
ENV UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never VIRTUAL_ENV=/opt/trimtab SOURCE_DATE_EPOCH=0 PYC_INVALIDATION_MODE=UNCHECKED_HASH
RUN --mount=type=secret,id=ca,target=/run/ca.crt with-authority /run/ca.crt \
    sh -c 'python3 -m venv /opt/uv && /opt/uv/bin/pip install --quiet uv==${UV_VERSION}' \
    && /opt/uv/bin/uv venv --quiet --python /usr/bin/python3 /opt/trimtab
WORKDIR /src
COPY requirements.lock ./

FROM build AS operator-locked
COPY proto/pyproject.toml proto/
COPY operator/pyproject.toml operator/
RUN --mount=type=secret,id=ca,target=/run/ca.crt with-authority /run/ca.crt install-locked proto operator \
    # The client for asyncio is a copy of everything, which nothing here imports.
    && rm -r /opt/trimtab/lib/python3.*/site-packages/kubernetes/aio

FROM operator-locked AS operator-own
COPY proto proto
COPY operator operator
RUN --mount=type=secret,id=ca,target=/run/ca.crt with-authority /run/ca.crt install-members proto operator \
    && collect-own /own

FROM build AS netmon-locked
COPY proto/pyproject.toml proto/
COPY netmon/pyproject.toml netmon/
RUN --mount=type=secret,id=ca,target=/run/ca.crt with-authority /run/ca.crt install-locked proto netmon

FROM netmon-locked AS netmon-own
COPY proto proto
COPY netmon netmon
RUN --mount=type=secret,id=ca,target=/run/ca.crt with-authority /run/ca.crt install-members proto netmon \
    && collect-own /own

FROM build AS trainer-locked
COPY proto/pyproject.toml proto/
COPY netmon/pyproject.toml netmon/
COPY trainer/pyproject.toml trainer/
RUN --mount=type=secret,id=ca,target=/run/ca.crt with-authority /run/ca.crt install-locked proto netmon 'trainer[workloads]'

FROM trainer-locked AS trainer-own
COPY proto proto
COPY netmon netmon
COPY trainer trainer
RUN --mount=type=secret,id=ca,target=/run/ca.crt with-authority /run/ca.crt install-members proto netmon trainer
# The kernels for this kind of processor, so that a rank does not compile them; others compile their own.
RUN compile-kernels /opt/trimtab/numba && collect-own /own

FROM python AS operator
COPY --from=operator-locked /opt/trimtab /opt/trimtab
COPY --from=operator-own /own /opt/trimtab
ENTRYPOINT ["trimtab-operator"]

FROM python AS netmon
USER root
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends iperf3 >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* /var/lib/dpkg/*-old /var/log/*
USER 65532:65532
COPY --from=netmon-locked /opt/trimtab /opt/trimtab
COPY --from=netmon-own /own /opt/trimtab
ENTRYPOINT ["trimtab-netmon"]

FROM python AS trainer
USER root
# Triton compiles what starts its kernels on a GPU with a C compiler.
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends gcc libc6-dev python3-dev >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* /var/lib/dpkg/*-old /var/log/*
USER 65532:65532
COPY --from=trainer-locked /opt/trimtab /opt/trimtab
COPY --from=trainer-own /own /opt/trimtab
WORKDIR /workspace
COPY examples/*.py examples/
ENV NUMBA_CACHE_DIR=/opt/trimtab/numba
CMD ["trimtab", "--help"]
