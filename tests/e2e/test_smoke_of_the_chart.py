"""`helm test` trains a job of one worker, and takes away what it made."""

import pytest
from marks import ON_PODS

pytestmark = [*ON_PODS, pytest.mark.full]


def test_helm_test_trains_a_job_and_leaves_nothing(ground, release):
    place = ground.place(release.namespace)
    phases = [line.split()[1] for line in release.test().splitlines() if line.startswith("Phase:")]
    assert set(phases) == {"Succeeded"}
    assert ("Succeeded", "all 1 workers ended well") in place.events("trimtab-test")
    assert place.leftovers() == []
    assert "trimtab-test" not in place.kubectl("get", "pod,tj,configmap,serviceaccount,role", "-o", "name")
