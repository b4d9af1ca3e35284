"""The programs of a Kubernetes cluster: those a user has (KUBEBUILDER_ASSETS), or built from pinned Go modules.

``python tests/cluster/binaries.py NAME...`` builds the named ones and prints where they are. A cold build takes some
six minutes on two cores; what was built is kept under the user's cache, keyed by the versions that went in.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TOOLS = Path(__file__).parent / "tools"
KUBERNETES_VERSION = "1.34.4"

#: Package of each program; `tools/go.mod` pins its version.
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "helm": "helm.sh/helm/v3/cmd/helm",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
}
#: What a control plane without nodes needs.
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")

#: Built by hand, Kubernetes would call itself v0.0.0, and charts and kubelets would refuse it.
_VERSION_FLAGS = " ".join(
    f"-X {package}.gitVersion=v{KUBERNETES_VERSION}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
)


def find(name: str) -> Path | None:
    """Where a program is, without building it: in KUBEBUILDER_ASSETS, or built before."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    places = [Path(assets)] if assets else []
    return next((place / name for place in [*places, directory()] if (place / name).is_file()), None)


def why_missing(names: Sequence[str]) -> str | None:
    """None where every program is here or can be built; otherwise what is missing and what to do."""
    missing = [name for name in names if find(name) is None]
    if not missing or shutil.which("go"):
        return None
    return f"no {', '.join(missing)}: install Go, or point KUBEBUILDER_ASSETS at Kubernetes' binaries"


def obtain(names: Sequence[str]) -> dict[str, Path]:
    """Where each program is, built now if need be. Raises CalledProcessError where building fails."""
    found = {}
    for name in names:
        place = find(name)
        if place is None:
            print(f"building {name} (once; kept in {directory()})", file=sys.stderr, flush=True)
            place = directory() / name
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished = place.with_suffix(f".{os.getpid()}")
            command = ["go", "build", "-trimpath", "-ldflags", f"-s -w {_VERSION_FLAGS}", "-o", unfinished]
            environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
            subprocess.run([*command, PACKAGES[name]], cwd=TOOLS, check=True, env=environment)
            unfinished.rename(place)
        found[name] = place
    return found


def directory() -> Path:
    """Where built programs are kept: outside the repository, another place for other versions."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    pins = b"".join((TOOLS / each).read_bytes() for each in ("go.mod", "go.sum"))
    return cache / "trimtab" / f"cluster-{hashlib.sha256(pins).hexdigest()[:16]}"


def main(names: Sequence[str]) -> int:
    """Build the named programs, or say why that cannot be."""
    why = why_missing(names)
    if why is not None:
        print(f"note: tests with a control plane will be left out: {why}", file=sys.stderr)
        return 0
    for name, place in obtain(names).items():
        print(name, place)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or CONTROL_PLANE))
