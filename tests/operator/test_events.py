"""The events that tell of what changed in a status."""

import pytest
from fixtures import STUCK, after, ago, batch_job, failed_pod, rank0_status
from trimtab_operator.kube.events import events, manifest


def told(before, known):
    return [(each.kind, each.reason) for each in events(before, after(**known))]


@pytest.mark.parametrize(
    ("before", "known", "reasons"),
    [
        ({"batch_job": None}, {"batch_job": batch_job(ready=2)}, [("Normal", "Running")]),
        ({"batch_job": batch_job(ready=2)}, {"batch_job": batch_job(ready=2)}, []),
        ({"batch_job": batch_job(ready=2)}, {"batch_job": batch_job(is_complete=True)}, [("Normal", "Succeeded")]),
        (
            {"batch_job": batch_job(ready=2)},
            {"batch_job": batch_job(failure="f"), "pods": (failed_pod(0),)},
            [("Warning", "Restarting")],
        ),
        (
            {"batch_job": batch_job(ready=2)},
            {"batch_job": batch_job(failure="f"), "spec": {"restartPolicy": "Never"}, "pods": (failed_pod(0),)},
            [("Warning", "Error")],
        ),
        (
            {"batch_job": batch_job(ready=2)},
            {"batch_job": batch_job(ready=2), "rank0_status": rank0_status()},
            [("Normal", "PlanChanged")],
        ),
        ({"batch_job": batch_job()}, {"batch_job": batch_job(), "pods": (STUCK,)}, [("Warning", "ImagePullBackOff")]),
        (
            {"batch_job": batch_job()},
            {"batch_job": batch_job(is_suspended=True), "spec": {"suspend": True}},
            [("Normal", "Suspended")],
        ),
    ],
)
def test_events_tell_what_changed(before, known, reasons):
    earlier = after(**before)
    assert told(earlier, {**known, "status": earlier.model_dump(by_alias=True)}) == reasons


def test_the_plan_that_training_starts_with_is_shown_and_is_no_change():
    starts = after(batch_job=batch_job(ready=2), rank0_status=rank0_status(plan_version=0))
    assert starts.plan.version == 0
    assert list(events(after(batch_job=batch_job(ready=2)), starts)) == []
    decided = after(batch_job=batch_job(ready=2), rank0_status=rank0_status(), status=starts.model_dump(by_alias=True))
    assert [each.reason for each in events(starts, decided)] == ["PlanChanged"]


def test_an_event_that_is_told_twice_has_one_name_and_another_restart_another():
    (event,) = events(after(batch_job=batch_job(ready=2)), after(batch_job=batch_job(is_complete=True)))
    names = [manifest(event, "team", "digits", "uid", ago(0), sequel)["metadata"]["name"] for sequel in ("0", "0", "1")]
    assert names[0] == names[1] != names[2]
