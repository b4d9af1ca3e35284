"""Where a process keeps its job's checkpoints."""

import pytest
from trimtab.checkpoint.settings import CheckpointSettings
from trimtab_api.errors import UserError
from trimtab_api.trainingjob.load import read_training_job

TRAINER = {"name": "trainer", "command": ["python", "t.py"]}


def job(**spec):
    return read_training_job(
        {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "digits"},
            "spec": {"workers": 1, "template": {"spec": {"containers": [TRAINER]}}, **spec},
        }
    )


def test_a_claim_that_a_launcher_mounts_is_a_path():
    asked = job(checkpoint={"volumeClaim": {"size": "1Gi"}, "keep": 3})
    settings = CheckpointSettings.of(asked.with_claim_mounted_at("/mnt/digits"))
    assert (settings.where, settings.keep) == ("/mnt/digits", 3)


@pytest.mark.parametrize("spec", [{}, {"checkpoint": {"path": "/c"}}])
def test_a_job_without_a_claim_stays_as_it_is(spec):
    assert job(**spec).with_claim_mounted_at("/mnt/digits") == job(**spec)


def test_a_claim_that_nobody_mounts_is_refused_with_the_remedy():
    with pytest.raises(UserError, match=r"^spec\.checkpoint\.volumeClaim: is mounted .* alone; name a directory or"):
        CheckpointSettings.of(job(checkpoint={"volumeClaim": {"size": "1Gi"}}))
