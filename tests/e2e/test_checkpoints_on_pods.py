"""A job keeps checkpoints on a claim of its own: a worker's pod is deleted, then the number of workers changes.

Each time training goes on from the checkpoint that SIGTERM had the ranks write.
"""

from __future__ import annotations

import re
import time

import pytest
from marks import WITH_TRIMTAB
from programs import wait_until

pytestmark = [*WITH_TRIMTAB, pytest.mark.full]

CLASS = "trimtab-e2e-checkpoints"
GOING_ON = re.compile(r"going on from the checkpoint of step (\d+)")


@pytest.fixture
def volume(node, place, tmp_path):
    """A volume of this machine, for a claim of the storage class; the trainer's user may write to it."""
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o777)
    name = f"{CLASS}-{place.namespace}"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": CLASS,
        "hostPath": {"path": str(folder)},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    place.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    yield folder
    place.kubectl("delete", "persistentvolume", name, "--wait=false")


def test_a_deleted_pod_and_another_number_of_workers_cost_no_step_that_was_kept(ground, place, volume):
    job = ground.images.example("kubernetes/digits.yaml")
    (trainer,) = job["spec"]["template"]["spec"]["containers"]
    trainer["args"] = ["--epochs", "1000"]
    trainer["resources"]["requests"]["cpu"] = "100m"
    claim = {"size": "1Gi", "storageClassName": CLASS}
    job["spec"] |= {"checkpoint": {"volumeClaim": claim, "steps": 20}, "maxRestarts": 0}
    place.apply(job)

    def is_kept(status):
        return status.get("state") == "Running" and status.get("checkpoint", {}).get("step", 0) >= 20

    place.wait_for_status("digits", is_kept, "a checkpoint is whole", 400)
    assert place.get("pvc", "digits-trimtab")["status"]["phase"] == "Bound"

    def goes_on(restarts):
        """Wait until it trains again; returns the step of the checkpoint from which it went on."""

        def trains(status):
            return (status.get("state"), status.get("restarts")) == ("Running", restarts)

        status = place.wait_for_status("digits", trains, f"it trains after {restarts} restarts", 400)
        print(f"restart {restarts}: first new step after {time.monotonic() - told_at:.1f} s")
        (said,) = GOING_ON.findall(place.kubectl("logs", place.pods("digits")[0]["metadata"]["name"], "-c", "trainer"))
        assert status["step"] > int(said)
        assert status["disruptions"] == restarts, "maxRestarts counts none of them"
        return int(said)

    told_at = time.monotonic()
    place.kubectl("delete", "pod", place.pods("digits")[1]["metadata"]["name"], "--wait=false")
    after_deletion = goes_on(1)
    assert after_deletion > 20, "SIGTERM had all ranks write one more"
    told_at = time.monotonic()
    place.kubectl("patch", "tj", "digits", "--type=merge", '--patch={"spec": {"workers": 1}}')
    assert goes_on(2) > after_deletion
    assert len(place.pods("digits")) == 1
    place.kubectl("delete", "tj", "digits")
    wait_until(lambda: not place.get("pvc", "digits-trimtab"), "the claim goes with the job", 60, interval=0.5)
    assert list(volume.glob("digits/step-*/manifest.json"))
