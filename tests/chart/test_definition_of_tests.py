"""What tests on a user's own cluster do about the definition of TrainingJob there, on a real API server."""

import sys
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("cluster", "e2e")]

import binaries
import definition
from control_plane import ControlPlane
from helm_chart import CHART
from place import StepTag

pytestmark = [pytest.mark.helm, pytest.mark.controlplane, pytest.mark.slow]

JOB = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": "default"},
    "spec": {
        "workers": 1,
        "template": {"spec": {"containers": [{"name": "trainer", "image": "trainer", "command": ["true"]}]}},
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as control_plane:
        yield control_plane


@pytest.fixture
def place(cluster):
    yield StepTag(binaries.obtain(("kubectl",))["kubectl"], cluster.kubeconfig, "default")
    cluster.kubectl("delete", "crd", definition.NAME, "--ignore-not-found", "--timeout=60s")


@pytest.fixture
def kept(helm, cluster, place):
    """The definition, which a release left behind."""
    where = ("--namespace", "tried", "--kubeconfig", str(cluster.kubeconfig))
    for command in (("install", "trimtab", str(CHART), "--create-namespace"), ("uninstall", "trimtab")):
        done = helm.run(*command, *where)
        assert done.returncode == 0, done.stderr
    place.wait(f"crd/{definition.NAME}", "condition=Established")


def test_a_cluster_without_trimtab_is_free_for_tests(place):
    assert definition.why_taken(place) is None
    assert definition.remove_if_unused(place) == []


@pytest.mark.usefixtures("kept")
def test_a_cluster_with_trimtab_is_refused_in_a_sentence_that_names_the_release_and_the_remedy(place):
    why = definition.why_taken(place)
    assert "this cluster has Trimtab already" in why
    assert "by the release tried/trimtab" in why
    assert f"kubectl delete crd {definition.NAME}" in why
    assert "\n" not in why


@pytest.mark.usefixtures("kept")
def test_the_definition_goes_once_no_job_of_anybodys_is_left(place):
    place.apply(JOB)
    assert definition.remove_if_unused(place) == ["default/digits"]
    assert place.status("digits") == {}
    assert place.get("tj", "digits")["metadata"]["name"] == "digits"
    place.kubectl("delete", "tj", "digits")
    assert definition.remove_if_unused(place) == []
    assert definition.why_taken(place) is None
