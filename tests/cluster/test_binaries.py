"""Where the programs of a test's cluster come from: what a user has, else what was built before, else a build."""

from __future__ import annotations

import binaries
import pytest

#: What `setup-envtest` and the like download.
ASSETS = ("etcd", "kube-apiserver", "kubectl")


@pytest.fixture(autouse=True)
def nothing_built(tmp_path, monkeypatch):
    """A user who has built nothing, and has neither assets nor Go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)


@pytest.fixture
def assets(tmp_path, monkeypatch):
    """A folder of programs, named by KUBEBUILDER_ASSETS."""
    folder = tmp_path / "assets"
    for name in ASSETS:
        put(folder / name)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    return folder


def put(program):
    program.parent.mkdir(parents=True, exist_ok=True)
    program.touch(mode=0o755)
    return program


def test_programs_are_taken_from_kubebuilder_assets(assets):
    assert binaries.obtain(ASSETS) == {name: assets / name for name in ASSETS}


def test_assets_come_before_what_was_built(assets):
    put(binaries.directory("etcd") / "etcd")
    assert binaries.find("etcd") == assets / "etcd"


def test_what_the_assets_lack_is_taken_from_what_was_built(assets):
    built = put(binaries.directory("kube-controller-manager") / "kube-controller-manager")
    found = binaries.obtain(binaries.CONTROL_PLANE)
    assert found == {"kube-controller-manager": built, **{name: assets / name for name in ASSETS}}


@pytest.mark.parametrize("value", ["", "/no/such/folder"])
def test_assets_that_are_not_there_are_no_hindrance(monkeypatch, value):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", value)
    assert binaries.find("etcd") is None
    built = put(binaries.directory("etcd") / "etcd")
    assert binaries.find("etcd") == built


@pytest.mark.usefixtures("assets")
def test_what_is_missing_is_named_with_the_remedy():
    assert binaries.why_missing(ASSETS) is None
    why = binaries.why_missing(binaries.CONTROL_PLANE)
    assert why == "no kube-controller-manager: install Go, or point KUBEBUILDER_ASSETS at Kubernetes' binaries"


def test_with_go_nothing_counts_as_missing(tmp_path):
    put(tmp_path / "bin/go")
    assert binaries.why_missing(binaries.CONTROL_PLANE) is None


def test_on_a_users_own_cluster_the_users_programs_will_do(tmp_path):
    users = put(tmp_path / "bin/kubectl")
    assert binaries.find("kubectl") is None
    assert binaries.obtain(["kubectl"], on_path=True) == {"kubectl": users}
    assert binaries.why_missing(["kubectl", "helm"], on_path=True) == "no helm: install it, or Go to build it with"
    built = put(binaries.directory("kubectl") / "kubectl")
    assert binaries.find("kubectl", on_path=True) == built
