"""`helm uninstall` takes the operator, and leaves the definition of TrainingJob and every job. Last, by its name."""

import pytest
from marks import ON_PODS
from programs import wait_until

pytestmark = [*ON_PODS, pytest.mark.full]


def test_the_definition_and_the_jobs_stay(ground, release, place):
    job = ground.images.example("digits.yaml")
    job["spec"]["suspend"] = True
    place.apply(job)
    place.wait_for_status("digits", lambda status: status.get("state") == "Suspended", "the operator has seen it")
    assert "kept due to the resource policy" in release.remove()
    assert place.status("digits")["state"] == "Suspended"
    assert "trainingjobs.trimtab.dev" in place.kubectl("get", "crd", "-o", "name")
    of_the_operator = "deployment,replicaset,pod,poddisruptionbudget,networkpolicy,role,rolebinding,serviceaccount"
    its = ground.place(release.namespace)
    wait_until(
        lambda: its.kubectl("get", of_the_operator, "-o", "name").split() == ["serviceaccount/default"],
        "nothing of the operator is left",
        interval=0.5,
    )
    place.kubectl("delete", "tj", "digits")
