"""When restarts of a job come to an end: evictions that count, restarts without a step, disruptions."""

from dataclasses import replace

import pytest
from fixtures import after, batch_job, failed_pod, pod
from trimtab_operator.decisions.pods import Problem
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.rank0.sanitize import Rank0Status

DISRUPTED = pod(0, phase="Failed", disruption=Problem("Disrupted", "drained"))
CUT_OFF = pod(1, node="n", node_is_lost=True)
WAITS_FOR_ITS_FIRST_STEP = {
    "progress": Progress(seconds_without_progress=1e6),
    "rank0_status": Rank0Status(message="waiting for rank 1 of 2 to join"),
}
EVICTED = pod(1, phase="Failed", disruption=Problem("Disrupted", "worker 1 was taken away"), is_memory_eviction=True)


def test_evictions_for_want_of_memory_count_after_three_in_a_row():
    counts, status = [], {}
    for _ in range(5):
        written = after(pods=(EVICTED,), status=status, batch_job=batch_job(attempt=status.get("restarts", 0)))
        status = written.model_dump(by_alias=True, mode="json", exclude_none=True)
        counts.append(written.restarts - written.disruptions)
    assert counts == [0, 0, 0, 1, 2]
    assert "raise resources.requests.memory" in status["lastRestartReason"]


def test_another_cause_ends_a_row_of_evictions():
    status = {"restarts": 3, "disruptions": 3, "memoryEvictionsInARow": 3}
    written = after(pods=(DISRUPTED,), status=status, batch_job=batch_job(attempt=3))
    assert (written.disruptions, written.memory_evictions_in_a_row) == (4, 0)


def test_an_eviction_that_counts_is_a_failure_where_nothing_may_restart():
    status = {"restarts": 3, "disruptions": 3, "memoryEvictionsInARow": 3}
    written = after(pods=(EVICTED,), status=status, batch_job=batch_job(attempt=3), spec={"restartPolicy": "Never"})
    assert written.state == "Failed"


NO_STEP = replace(failed_pod(0), has_no_step=True)


def test_restarts_that_never_reach_a_step_end():
    status, states = {}, []
    for attempt in range(3):
        written = after(
            pods=(NO_STEP,),
            batch_job=batch_job(attempt=attempt, failure="f"),
            progress=Progress(),
            status=status,
            spec={"maxRestarts": 100},
        )
        status = written.model_dump(by_alias=True, mode="json", exclude_none=True)
        states.append((written.state, written.restarts_without_step))
    assert states == [("Restarting", 0), ("Restarting", 1), ("Failed", 2)]
    assert written.condition("Failed").reason == "RestartsReachNoStep"
    ends = "(after 2 restarts, the last 2 of which failed before their first step, as the next one would)"
    assert written.message == f"worker 0 failed {ends}"


@pytest.mark.parametrize(
    ("what", "known", "num"),
    [
        ("a step was heard of", {"pods": (NO_STEP,), "progress": Progress(has_trained=True)}, 0),
        ("or had been", {"pods": (NO_STEP,), "status": {"state": "Running"}}, 0),
        ("nobody says that there was none", {"pods": (failed_pod(0),)}, 0),
        ("the cluster took a worker away", {"pods": (NO_STEP, replace(DISRUPTED, worker=1))}, 1),
        ("it took one away after a step", {"pods": (DISRUPTED,), "progress": Progress(has_trained=True)}, 0),
        ("its node is lost", {"pods": (NO_STEP, CUT_OFF)}, 1),
    ],
)
def test_other_restarts_go_on(what, known, num):
    status = {"restarts": 5, "disruptions": 3, "restartsWithoutStep": 1, **known.pop("status", {})}
    ended = {"batch_job": batch_job(attempt=5, failure="f"), "progress": Progress(), "status": status, **known}
    written = after(**ended, spec={"maxRestarts": 100})
    assert (written.state, written.restarts_without_step) == ("Restarting", num), what


def test_a_restart_that_waits_for_its_first_step_in_vain_has_reached_none():
    status = {"restarts": 2, "restartsWithoutStep": 1}
    limits = {"progressDeadlineSeconds": 600, "maxRestarts": 100}
    written = after(**WAITS_FOR_ITS_FIRST_STEP, status=status, batch_job=batch_job(attempt=2), spec=limits)
    assert (written.state, written.condition("Failed").reason) == ("Failed", "RestartsReachNoStep")


def test_disruptions_end_at_max_disruptions():
    status = {"restarts": 2, "disruptions": 2}
    written = after(pods=(DISRUPTED,), status=status, batch_job=batch_job(attempt=2), spec={"maxDisruptions": 2})
    assert (written.state, written.condition("Failed").reason) == ("Failed", "TooManyDisruptions")
    assert "the most that spec.maxDisruptions allows" in written.message
