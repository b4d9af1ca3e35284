"""The programs of a Kubernetes cluster: those a user has (KUBEBUILDER_ASSETS), or built from pinned Go modules.

``python tests/cluster/binaries.py NAME...`` builds the named ones and prints where they are: without a name those of a
control plane, with `cluster` those of a cluster with a node; after `--on-path` those on PATH will do. A cold build
takes some six, and twelve, minutes on two cores; what was built is kept under the user's cache, keyed by the versions
that went in.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_HERE = Path(__file__).parent
#: Modules that pin versions. The DNS server asks for other versions of Kubernetes' libraries than Kubernetes does.
_TOOLS, _DNS, _PROSE = _HERE / "tools", _HERE / "dns", _HERE.parent / "docs" / "vale"
KUBERNETES_VERSION = "1.34.4"

#: Package of each program; the `go.mod` of its module pins its version.
PACKAGES = {
    "coredns": "github.com/coredns/coredns",
    "etcd": "go.etcd.io/etcd/server/v3",
    "helm": "helm.sh/helm/v3/cmd/helm",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "vale": "github.com/errata-ai/vale/v3/cmd/vale",
}
#: What a control plane without nodes needs.
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
#: What a node needs beside it, apart from what a distribution brings.
NODE = ("kube-scheduler", "kubelet", "kube-proxy", "coredns")

#: Built by hand, Kubernetes would call itself v0.0.0, and charts and kubelets would refuse it.
_VERSION_FLAGS = " ".join(
    f"-X {package}.gitVersion=v{KUBERNETES_VERSION}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
)


def find(name: str, *, on_path: bool = False) -> Path | None:
    """Where a program is, without building it: in KUBEBUILDER_ASSETS, or built before.

    With `on_path` the user's own will do where it is neither, of whatever version: for a cluster of the user's own.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    places = [Path(assets)] if assets else []
    found = next((place / name for place in [*places, directory(name)] if (place / name).is_file()), None)
    if found is None and on_path and (users := shutil.which(name)):
        return Path(users)
    return found


def why_missing(names: Sequence[str], *, on_path: bool = False) -> str | None:
    """None where every program is here or can be built; otherwise what is missing and what to do."""
    missing = [name for name in names if find(name, on_path=on_path) is None]
    if not missing or shutil.which("go"):
        return None
    if on_path:
        return f"no {', '.join(missing)}: install it, or Go to build it with"
    return f"no {', '.join(missing)}: install Go, or point KUBEBUILDER_ASSETS at Kubernetes' binaries"


def obtain(names: Sequence[str], *, on_path: bool = False) -> dict[str, Path]:
    """Where each program is, built now if need be. Raises CalledProcessError where building fails."""
    found = {}
    for name in names:
        place = find(name, on_path=on_path)
        if place is None:
            print(f"building {name} (once; kept in {directory(name)})", file=sys.stderr, flush=True)
            place = directory(name) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished = place.with_suffix(f".{os.getpid()}")
            command = ["go", "build", "-trimpath", "-ldflags", f"-s -w {_VERSION_FLAGS}", "-o", unfinished]
            environment = {**os.environ, "CGO_ENABLED": "1" if name == "vale" else "0", "GOFLAGS": "-buildvcs=false"}
            subprocess.run([*command, PACKAGES[name]], cwd=_module(name), check=True, env=environment)
            unfinished.rename(place)
        found[name] = place
    return found


def directory(name: str) -> Path:
    """Where a built program is kept: outside the repository, another place for other versions."""
    pins = b"".join((_module(name) / each).read_bytes() for each in ("go.mod", "go.sum"))
    return cache() / f"cluster-{hashlib.sha256(pins).hexdigest()[:16]}"


def cache() -> Path:
    """Where the user keeps what took long to make."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab"


def _module(name: str) -> Path:
    return {"coredns": _DNS, "vale": _PROSE}.get(name, _TOOLS)


def main(names: Sequence[str]) -> int:
    """Build the named programs, or say why that cannot be."""
    on_path = list(names[:1]) == ["--on-path"]
    names = names[1:] if on_path else names
    names = (*CONTROL_PLANE, *NODE, "helm") if list(names) == ["cluster"] else names
    why = why_missing(names, on_path=on_path)
    if why is not None:
        print(f"note: tests with a cluster will be left out: {why}", file=sys.stderr)
        return 0
    for name, place in obtain(names, on_path=on_path).items():
        print(name, place)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or CONTROL_PLANE))
