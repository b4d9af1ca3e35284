"""What keeps a good job from running shows in its status within half a minute, in a user's words."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from marks import WITH_TRIMTAB
from place import condition

pytestmark = [*WITH_TRIMTAB, pytest.mark.full]

SOON = timedelta(seconds=30)


@pytest.fixture
def told(ground, place, shown):
    """Apply a job of one worker; returns its status once it says why, and how long that took by its own times."""

    def apply(kind, reason, script="pass", resources=None, image=None, config_map=None):
        trainer = {
            "name": "trainer",
            "image": image or ground.images.name("trainer"),
            "command": ["python", "-c", script],
            "resources": resources or {},
        }
        pod = {"containers": [trainer]}
        if config_map is not None:
            trainer["volumeMounts"] = [{"name": "settings", "mountPath": "/settings"}]
            pod["volumes"] = [{"name": "settings", "configMap": {"name": config_map}}]
        job = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "job"},
            "spec": {"workers": 1, "maxRestarts": 0, "template": {"spec": pod}},
        }
        place.apply(job)
        status = place.wait_for_status(
            "job", lambda status: condition(status, kind).get("reason") in reason, f"{kind} tells of {reason}"
        )
        created = place.get("tj", "job")["metadata"]["creationTimestamp"]
        took = datetime.fromisoformat(status["lastUpdateTime"]) - datetime.fromisoformat(created)
        told = condition(status, kind)
        with (shown / "causes.txt").open("a") as file:
            file.write(f"{kind} {told['status']} {told['reason']} after {took.seconds} s: {told['message']}\n")
        assert took <= SOON
        return told["message"], status, place.events("job")

    return apply


def test_an_image_that_does_not_exist(told, ground):
    image = ground.images.name("no-such-image")
    reasons = ("ErrImagePull", "ImagePullBackOff")
    message, status, events = told("Started", reasons, image=image)
    assert "worker 0 cannot start container trainer" in message
    assert image in message
    assert status["state"] == "Starting"
    assert any(reason in reasons for reason, _ in events)


def test_a_pod_that_cannot_be_placed(told):
    message, status, events = told("Started", ("Unschedulable",), resources={"requests": {"cpu": "1000"}})
    assert "worker 0 cannot be placed" in message
    assert "Insufficient cpu" in message
    assert status["state"] == "Starting"
    assert ("Unschedulable", message) in events


def test_a_volume_of_a_config_map_that_does_not_exist(told):
    message, status, events = told("Started", ("FailedMount",), config_map="none")
    assert "worker 0 cannot mount its volumes" in message
    assert 'configmap "none" not found' in message
    assert status["state"] == "Starting"
    assert ("FailedMount", message) in events


def test_a_command_that_fails(told):
    script = "import sys; print('no such directory: /data', file=sys.stderr); sys.exit(1)"
    message, status, events = told("Failed", ("Error",), script)
    assert "worker 0 failed" in message
    assert "exit code 1" in message
    assert "no such directory: /data" in message
    assert status["state"] == "Failed"
    assert events[-1][0] == "Error"


def test_a_worker_that_is_killed_for_memory(told):
    script = "x = b'x' * (1 << 30)"
    message, status, events = told("Failed", ("OOMKilled",), script, resources={"limits": {"memory": "400Mi"}})
    assert "worker 0 was killed for memory in container trainer" in message
    assert "resources.limits.memory" in message
    assert status["state"] == "Failed"
    assert events[-1][0] == "OOMKilled"
