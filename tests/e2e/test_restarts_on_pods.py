"""A job that trains on pods: one process is killed and all ranks restart together; it is suspended and goes on."""

from __future__ import annotations

import pytest
from marks import WITH_TRIMTAB
from programs import wait_until

pytestmark = [*WITH_TRIMTAB, pytest.mark.full]

#: Kills the rank in a pod: the process that runs the training itself, not who started it.
KILL = """
import os, pathlib
for each in pathlib.Path("/proc").glob("[0-9]*"):
    words = (each / "cmdline").read_bytes().split(b"\\0")
    if b"trimtab.workloads.digits" in words and b"worker" not in words:
        os.kill(int(each.name), 9)
"""


@pytest.fixture
def trains(ground, place):
    """A job of two workers that has more to train than the test takes; wait until it has done steps."""
    job = ground.images.example("kubernetes/digits.yaml")
    (trainer,) = job["spec"]["template"]["spec"]["containers"]
    trainer["args"] = ["--epochs", "1000"]
    trainer["resources"]["requests"]["cpu"] = "100m"
    place.apply(job)

    def wait(restarts):
        return place.wait_for_status(
            "digits",
            lambda s: (s.get("state"), s.get("restarts")) == ("Running", restarts) and s.get("step", 0) > 0,
            f"it trains after {restarts} restarts",
            180,
        )

    wait(0)
    return wait


def test_one_killed_process_restarts_all_ranks_and_the_event_says_why(place, trains):
    before = {each["metadata"]["uid"] for each in place.pods("digits")}
    victim = place.pods("digits")[1]["metadata"]["name"]
    place.kubectl("exec", victim, "--container=trainer", "--", "python", "-c", KILL)
    status = place.wait_for_status("digits", lambda s: s.get("restarts") == 1, "the restart is counted", 60)
    assert "worker 1 failed: container trainer ended with exit code 137" in status["lastRestartReason"]
    assert "rank 1 ended with signal SIGKILL" in status["lastRestartReason"]
    assert any(reason == "Restarting" and "worker 1 failed" in message for reason, message in place.events("digits"))
    trains(1)
    assert before.isdisjoint(each["metadata"]["uid"] for each in place.pods("digits"))
    assert place.status("digits")["disruptions"] == 0


def test_a_suspended_job_has_no_pods_and_trains_again_when_resumed(place, trains):
    place.kubectl("patch", "tj", "digits", "--type=merge", '--patch={"spec": {"suspend": true}}')
    place.wait_for_status("digits", lambda s: s.get("state") == "Suspended", "it is suspended", 60)
    wait_until(lambda: place.pods("digits") == [], "its pods have ended", 60, interval=0.5)
    place.kubectl("patch", "tj", "digits", "--type=merge", '--patch={"spec": {"suspend": false}}')
    trains(0)
    told = [reason for reason, _ in place.events("digits")]
    assert told.index("Suspended") < told.index("Resumed") < len(told) - 1 - told[::-1].index("Running")
