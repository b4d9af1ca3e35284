"""What is decided about a job, for every turn that its life may take."""

from dataclasses import replace

import pytest
from fixtures import UID, after, ago, batch_job, failed_pod, observed, pod, rank0_status
from hypothesis import given
from hypothesis import strategies as st
from trimtab_operator.decisions.decide import Action, decide
from trimtab_operator.decisions.pods import Problem
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.decisions.policies.restart import RestartBackoff
from trimtab_operator.rank0.sanitize import Rank0Status

RESTARTS = {"restarts": 1}
FAILED = batch_job(failure="Job has reached the specified backoff limit")
OUT_OF_MEMORY = failed_pod(1, reason="OOMKilled")
STALLED = {"progress": Progress(has_trained=True, seconds_without_progress=600.0), "rank0_status": rank0_status()}
NEVER_TRAINED = {
    "progress": Progress(seconds_without_progress=1e6),
    "rank0_status": Rank0Status(message="waiting for rank 1 of 2 to join"),
}
DISRUPTED = pod(0, phase="Failed", disruption=Problem("Disrupted", "drained"))
KILLED = failed_pod(1, "a", exit_code=137)
TERMINATED = failed_pod(1, "a", exit_code=143)
OF_TWO = batch_job(num_workers=2)
SUSPENDED = batch_job(is_suspended=True)
ENDING = batch_job(is_deleting=True)
LOST_ANOTHER = replace(
    failed_pod(0, ago(10)), failure=Problem("Error", "worker 0 failed; last it said: CommunicationError: rank 1: gone")
)
DELETED = pod(1, deleted_at=ago(11), to_end_by=ago(-19))
SAME_SECOND = replace(LOST_ANOTHER, failed_at=ago(11))
KILLED_BY_SIGTERM = {"phase": "Failed", "failure": Problem("Error", "told to end"), "exit_code": 143}
CUT_OFF = pod(1, node="n", node_is_lost=True)
NOT_STARTED = "worker 1 had not started when the others had waited for it for spec.communication.timeout"
LATER = Problem("Disrupted", "drained too")


@pytest.mark.parametrize(
    ("what", "known", "action"),
    [
        ("a new job gets its Job", {"batch_job": None, "status": {"startTime": None}}, Action.CREATE_BATCH_JOB),
        ("a suspended one too, suspended", {"batch_job": None, "spec": {"suspend": True}}, Action.CREATE_BATCH_JOB),
        ("a job that runs is left alone", {}, Action.NOTHING),
        ("suspend: the Job is suspended", {"spec": {"suspend": True}}, Action.SUSPEND_BATCH_JOB),
        ("and resumed", {"batch_job": batch_job(is_suspended=True, is_suspended_by_us=True)}, Action.RESUME_BATCH_JOB),
        ("a Job that its queue runs is left to it", {"spec": {"suspend": True}, "is_queued": True}, Action.NOTHING),
        (
            "a Job that its queue suspends waits",
            {"batch_job": batch_job(is_suspended=True), "is_queued": True},
            Action.NOTHING,
        ),
        ("and one that somebody else suspends", {"batch_job": batch_job(is_suspended=True)}, Action.NOTHING),
        ("a Job of an earlier attempt goes", {"status": {"restarts": 1}}, Action.DELETE_BATCH_JOB),
        ("and is waited for", {"status": {"restarts": 1}, "batch_job": batch_job(is_deleting=True)}, Action.NOTHING),
        ("then the next is made", {"status": {"restarts": 1}, "batch_job": None}, Action.CREATE_BATCH_JOB),
        (
            "when it is time",
            {"status": RESTARTS | {"lastRestartTime": ago(0)}, "batch_job": None},
            Action.CREATE_BATCH_JOB,
        ),
        ("not before", {"status": RESTARTS | {"lastRestartTime": ago(-5)}, "batch_job": None}, Action.NOTHING),
        ("not while pods of the one before are there", {"batch_job": None, "stale_pods": (pod(1),)}, Action.NOTHING),
        (
            "a Job that makes no pod, and nobody says why, is made anew",
            {"missing_pods_seconds": 60.0},
            Action.RENEW_BATCH_JOB,
        ),
        (
            "the Job of the attempt before goes first",
            {"status": RESTARTS, "batch_job": None, "earlier_batch_jobs": (batch_job(),)},
            Action.DELETE_BATCH_JOB,
        ),
        (
            "its pods may take their time",
            {"status": RESTARTS, "batch_job": None, "earlier_batch_jobs": (ENDING,), "stale_pods": (pod(1),)},
            Action.NOTHING,
        ),
        (
            "but one that will never end is not waited for",
            {"status": RESTARTS, "batch_job": None, "earlier_batch_jobs": (ENDING,)},
            Action.CREATE_BATCH_JOB,
        ),
        (
            "a failed job's pods of the attempt before end too",
            {"status": {"state": "Failed", "restarts": 1}, "batch_job": None, "earlier_batch_jobs": (batch_job(),)},
            Action.DELETE_BATCH_JOB,
        ),
        (
            "while a worker that was lost may yet say why, nothing is decided",
            {"batch_job": FAILED, "pods": (LOST_ANOTHER, pod(1, node="n"))},
            Action.NOTHING,
        ),
        ("a Job that is suspended deletes its pods", {"batch_job": SUSPENDED, "pods": (DELETED,)}, Action.NOTHING),
        (
            "and one that has resumed waits for them",
            {"batch_job": batch_job(started_at=ago(11)), "pods": (DELETED,)},
            Action.NOTHING,
        ),
        ("a Job of as many workers as the job has is left alone", {"batch_job": OF_TWO}, Action.NOTHING),
        ("not before", {"missing_pods_seconds": 59.0}, Action.NOTHING),
        (
            "nor if it was said why",
            {"missing_pods_seconds": 600.0, "creation_error": Problem("FailedCreate", "")},
            Action.NOTHING,
        ),
        ("nor if there is a pod", {"missing_pods_seconds": 600.0, "pods": (pod(0),)}, Action.NOTHING),
        ("or was one", {"missing_pods_seconds": 600.0, "batch_job": batch_job(succeeded=1)}, Action.NOTHING),
        (
            "nor if it is to have none",
            {"missing_pods_seconds": 600.0, "batch_job": batch_job(is_suspended=True), "spec": {"suspend": True}},
            Action.NOTHING,
        ),
        (
            "a Job that lost its labels gets them back",
            {"batch_job": batch_job(has_its_labels=False)},
            Action.LABEL_BATCH_JOB,
        ),
        (
            "but not one that is to go",
            {"batch_job": batch_job(has_its_labels=False), "status": {"restarts": 1}},
            Action.DELETE_BATCH_JOB,
        ),
        (
            "nor somebody else's",
            {"batch_job": batch_job(has_its_labels=False, owner_uid="other")},
            Action.NOTHING,
        ),
        (
            "ranks that get no further are given time",
            {**STALLED, "spec": {"progressDeadlineSeconds": 601}},
            Action.NOTHING,
        ),
        ("also where none is written", STALLED, Action.NOTHING),
        ("for as long as they like while they have never trained", NEVER_TRAINED, Action.NOTHING),
        (
            "and when training has ended",
            {**STALLED, "rank0_status": Rank0Status(state="Succeeded"), "spec": {"progressDeadlineSeconds": 1}},
            Action.NOTHING,
        ),
        (
            "and while nothing is heard of them",
            {"progress": Progress(seconds_without_progress=1e6), "spec": {"progressDeadlineSeconds": 1}},
            Action.NOTHING,
        ),
        ("somebody else's Job is not touched", {"batch_job": batch_job(owner_uid="other")}, Action.NOTHING),
        ("nor if it is finished", {"batch_job": batch_job(owner_uid="other", is_complete=True)}, Action.NOTHING),
        ("a failed job's pods end", {"status": {"state": "Failed"}}, Action.DELETE_BATCH_JOB),
        ("a finished Job is kept", {"status": {"state": "Failed"}, "batch_job": FAILED}, Action.NOTHING),
        (
            "until its time is up",
            {"spec": {"ttlSecondsAfterFinished": 9}, "status": {"state": "Succeeded", "completionTime": ago(9)}},
            Action.DELETE_JOB,
        ),
        (
            "not before",
            {
                "spec": {"ttlSecondsAfterFinished": 9},
                "status": {"state": "Succeeded", "completionTime": ago(8)},
                "batch_job": batch_job(is_complete=True),
            },
            Action.NOTHING,
        ),
    ],
)
def test_one_action_at_a_time(what, known, action):
    decision = decide(observed(**known))
    assert (decision.action, decision.terminal_state, decision.restart) == (action, None, None)


@pytest.mark.parametrize(
    ("known", "state", "reason"),
    [
        ({"batch_job": batch_job(is_complete=True)}, "Succeeded", "Completed"),
        ({"batch_job": FAILED, "spec": {"restartPolicy": "Never"}}, "Failed", "JobFailed"),
        ({"batch_job": FAILED, "pods": (OUT_OF_MEMORY,), "spec": {"maxRestarts": 0}}, "Failed", "OOMKilled"),
        (
            {"batch_job": batch_job(attempt=3, failure="f"), "status": {"restarts": 3}, "pods": (failed_pod(0),)},
            "Failed",
            "Error",
        ),
        ({"spec": {"activeDeadlineSeconds": 60}}, "Failed", "DeadlineExceeded"),
        (
            {**STALLED, "spec": {"progressDeadlineSeconds": 600, "maxRestarts": 0}},
            "Failed",
            "ProgressDeadlineExceeded",
        ),
        ({"spec": {"activeDeadlineSeconds": 60}, "batch_job": batch_job(is_complete=True)}, "Succeeded", "Completed"),
    ],
)
def test_the_end(known, state, reason):
    terminal_state = decide(observed(**known)).terminal_state
    assert (terminal_state.state, terminal_state.reason) == (state, reason)


@pytest.mark.parametrize(
    ("known", "counts", "message"),
    [
        ({"batch_job": FAILED, "pods": (failed_pod(0, "b"), failed_pod(1, "a"))}, True, "worker 1 failed"),
        ({"batch_job": FAILED, "pods": (failed_pod(1), failed_pod(0, "a"))}, True, "worker 0 failed"),
        ({"batch_job": FAILED, "pods": (failed_pod(0, "a"), KILLED)}, True, "worker 1 failed"),
        ({"batch_job": FAILED, "pods": (KILLED, failed_pod(2, "a", "OOMKilled", 137))}, True, "worker 2 failed"),
        ({"batch_job": FAILED, "pods": (failed_pod(0, "Z"), KILLED)}, True, "worker 0 failed"),
        ({"batch_job": FAILED, "pods": (failed_pod(0, "a"), TERMINATED)}, True, "worker 0 failed"),
        ({"batch_job": FAILED}, True, "Job has reached the specified backoff limit"),
        (
            {**STALLED, "spec": {"progressDeadlineSeconds": 600}},
            True,
            "no new step after step 12 for 600 s (spec.progressDeadlineSeconds)",
        ),
        (
            {**STALLED, "spec": {"communication": {"timeout": "5min"}}, "pods": (pod(1, is_unready=True),)},
            True,
            "no new step after step 12 for 600 s "
            "(2 times spec.communication.timeout; spec.progressDeadlineSeconds sets another); worker 1 is not ready",
        ),
        (
            {**NEVER_TRAINED, "spec": {"progressDeadlineSeconds": 600}},
            True,
            "no first step for 600 s (spec.progressDeadlineSeconds); rank 0 last said: waiting for rank 1 of 2 to join",
        ),
        (
            {**STALLED, "spec": {"progressDeadlineSeconds": 600}, "batch_job": FAILED, "pods": (failed_pod(1),)},
            True,
            "worker 1 failed",
        ),
        ({"pods": (DISRUPTED,)}, False, "drained"),
        ({"pods": (DISRUPTED, failed_pod(1, "a")), "batch_job": FAILED}, False, "drained"),
        ({"pods": (DISRUPTED,), "spec": {"restartPolicy": "Never"}}, False, "drained"),
        (
            {"pods": (LOST_ANOTHER, CUT_OFF), "batch_job": FAILED},
            False,
            "worker 1 was lost with node n, which is gone or cannot be reached",
        ),
        (
            {"pods": (failed_pod(0, "a"), CUT_OFF), "batch_job": FAILED, "spec": {"maxRestarts": 0}},
            False,
            "worker 1 was lost with node n, which is gone or cannot be reached",
        ),
        (
            {"pods": (pod(0), CUT_OFF), **STALLED, "spec": {"progressDeadlineSeconds": 600}},
            False,
            "worker 1 was lost with node n, which is gone or cannot be reached",
        ),
        ({"pods": (pod(0), DELETED)}, False, "the pod of worker 1 was deleted before it ended, by whom is unknown"),
        (
            {"pods": (LOST_ANOTHER, DELETED), "batch_job": FAILED, "spec": {"maxRestarts": 0}},
            False,
            "the pod of worker 1 was deleted before it ended, by whom is unknown",
        ),
        (
            {"pods": (LOST_ANOTHER, replace(DELETED, **KILLED_BY_SIGTERM)), "batch_job": FAILED},
            False,
            "the pod of worker 1 was deleted before it ended, by whom is unknown",
        ),
        ({"pods": (failed_pod(0, ago(10)), DELETED), "batch_job": FAILED}, True, "worker 0 failed"),
        (
            {"pods": (SAME_SECOND, replace(DELETED, **KILLED_BY_SIGTERM)), "batch_job": FAILED},
            False,
            "the pod of worker 1 was deleted before it ended, by whom is unknown",
        ),
        (
            {"pods": (replace(LOST_ANOTHER, failed_at=ago(61)), DELETED), "batch_job": FAILED},
            True,
            LOST_ANOTHER.failure.message,
        ),
        (
            {"pods": (LOST_ANOTHER, replace(failed_pod(1, ago(12)), deleted_at=ago(11))), "batch_job": FAILED},
            True,
            "worker 1 failed",
        ),
        ({**NEVER_TRAINED, "pods": (LOST_ANOTHER, pod(1, phase="Pending")), "batch_job": FAILED}, False, NOT_STARTED),
        (
            {**NEVER_TRAINED, "pods": (LOST_ANOTHER,), "batch_job": FAILED, "spec": {"maxRestarts": 0}},
            False,
            NOT_STARTED,
        ),
        ({**NEVER_TRAINED, "pods": (failed_pod(0, ago(9)),), "batch_job": FAILED}, True, "worker 0 failed"),
        (
            {**NEVER_TRAINED, "pods": (LOST_ANOTHER,), "batch_job": FAILED, "status": {"workers": {"ready": 2}}},
            True,
            LOST_ANOTHER.failure.message,
        ),
        ({"pods": (LOST_ANOTHER, failed_pod(1, ago(11))), "batch_job": FAILED}, True, "worker 1 failed"),
        (
            {"pods": (replace(LOST_ANOTHER, failed_at=ago(61)), pod(1, node="n")), "batch_job": FAILED},
            True,
            LOST_ANOTHER.failure.message,
        ),
        ({"pods": (replace(CUT_OFF, phase="Failed"),), "batch_job": FAILED}, True, FAILED.failure),
        ({"pods": (replace(DISRUPTED, worker=1, disruption=LATER), DISRUPTED)}, False, "drained"),
        (
            {"batch_job": batch_job(attempt=4, failure="f"), "status": {"restarts": 4, "disruptions": 2}},
            True,
            "f",
        ),
    ],
)
def test_all_ranks_restart_together(known, counts, message):
    decision = decide(observed(**known))
    assert decision.action is Action.NOTHING, "the restart is counted before anything is deleted"
    assert (decision.restart.counts_toward_max_restarts, decision.restart.cause.message) == (counts, message)


def test_a_pod_deleted_in_the_second_of_a_failure_may_be_on_a_node_that_is_about_to_be_lost():
    """The Job controller deletes the pods of a failed Job within that second too."""
    decision = decide(observed(pods=(SAME_SECOND, DELETED), batch_job=FAILED))
    assert (decision.awaits_cause, decision.restart) == (True, None)


@pytest.mark.parametrize(
    ("in_a_row", "last", "began", "backoff"),
    [
        (0, None, 30, RestartBackoff(1, 0)),
        (1, 30, 90, RestartBackoff(2, 10)),
        (2, 30, 90, RestartBackoff(3, 20)),
        (5, 599, 5000, RestartBackoff(6, 160)),
        (5, 600, 5000, RestartBackoff(1, 0)),
        (9, 1, 5000, RestartBackoff(10, 300)),
        (10_000, 1, 5000, RestartBackoff(10_001, 300)),
        (3, 5000, 20, RestartBackoff(4, 40)),  # it was suspended meanwhile
        (1, None, None, RestartBackoff(2, 10)),
    ],
)
def test_restarts_that_follow_each_other_fast_wait(in_a_row, last, began, backoff):
    status = {
        "restarts": 900,
        "disruptions": 900,
        "restartsInARow": in_a_row,
        "lastRestartTime": None if last is None else ago(last),
        "startTime": None if began is None else ago(began),
    }
    lost = observed(status=status, batch_job=batch_job(attempt=900, failure="f"), pods=(DISRUPTED,))
    assert decide(lost).backoff == backoff


@pytest.mark.parametrize(("deadline", "seconds"), [(None, 5), (61, 1), (3600, 5)])
def test_while_a_restart_waits_the_deadline_does_not(deadline, seconds):
    spec = {} if deadline is None else {"activeDeadlineSeconds": deadline}
    waiting = observed(spec=spec, status=RESTARTS | {"lastRestartTime": ago(-5)}, batch_job=None)
    assert decide(waiting).requeue_after_seconds == seconds


def test_pods_of_an_attempt_that_is_over_are_told_and_looked_at_again_in_time():
    blocked = {"type": "Ready", "status": "False", "reason": "Blocked", "lastTransitionTime": ago(600)}
    status = {"conditions": [blocked | {"observedGeneration": 1}]}
    known = {"batch_job": None, "stale_pods": (pod(1), pod(0)), "status": status}
    decision = decide(observed(**known, spec={"activeDeadlineSeconds": 65}))
    assert decision.blocking_reason.startswith(
        "waits for pods of an earlier attempt to end (worker 0, 1); if they never do: "
    )
    assert decision.blocking_reason.endswith("kubectl delete pods -n team -l trimtab.dev/job-name=digits")
    assert decision.requeue_after_seconds == 5


def test_a_clock_that_was_ahead_stops_nothing():
    an_hour_ahead = {"startTime": ago(-3600), "lastRestartTime": ago(-3600), "restarts": 1}
    waits = decide(observed(batch_job=None, status=an_hour_ahead))
    assert (waits.action, waits.requeue_after_seconds) == (Action.NOTHING, 300.0)
    runs = decide(observed(spec={"activeDeadlineSeconds": 60}, status={"startTime": ago(-3600)}))
    assert runs.requeue_after_seconds == 60


def test_a_failed_pod_waits_for_the_job_controller():
    assert decide(observed(pods=(failed_pod(0),))).restart is None


def test_what_has_been_in_the_way_for_long_is_looked_for_seldom():
    ready = {"type": "Ready", "status": "False", "reason": "Blocked", "observedGeneration": 1}
    for since, seconds in ((5, 1.0), (100, 10.0), (3600, 30.0)):
        status = {"conditions": [{**ready, "lastTransitionTime": ago(since)}]}
        assert decide(observed(batch_job=batch_job(owner_uid="other"), status=status)).requeue_after_seconds == seconds
    assert decide(observed(batch_job=batch_job(owner_uid="other"))).requeue_after_seconds == 1.0


def test_a_deadline_is_looked_at_again_in_time():
    assert decide(observed(spec={"activeDeadlineSeconds": 100})).requeue_after_seconds == 40


def test_time_spent_suspended_has_no_deadline():
    known = {"spec": {"activeDeadlineSeconds": 1, "suspend": True}, "status": {"startTime": None}}
    assert decide(observed(**known, batch_job=batch_job(is_suspended=True))).terminal_state is None


children = st.none() | st.builds(
    batch_job,
    owner_uid=st.sampled_from([UID, "other"]),
    attempt=st.integers(0, 3),
    has_its_labels=st.booleans(),
    is_deleting=st.booleans(),
    is_suspended=st.booleans(),
    is_complete=st.booleans(),
    failure=st.sampled_from([None, "failed"]),
)
pod_lists = st.lists(
    st.sampled_from([pod(0), pod(1), failed_pod(0), failed_pod(1, "a"), DISRUPTED]), max_size=3, unique_by=id
)
states = st.sampled_from(["Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"])


@given(
    children,
    pod_lists,
    states,
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 1, 1000]),
    st.integers(0, 3),
)
def test_whatever_is_seen_nobody_elses_job_is_touched_and_ends_are_final(
    seen, pods, state, restarts, suspend, queued, deadline, max_restarts
):
    spec = {"suspend": suspend, "maxRestarts": max_restarts, "activeDeadlineSeconds": deadline}
    observation = observed(
        spec={key: value for key, value in spec.items() if value is not None},
        status={"state": state, "restarts": restarts, "completionTime": ago(1)},
        batch_job=seen,
        pods=tuple(pods),
        is_queued=queued,
    )
    decision = decide(observation)
    if seen is not None and seen.owner_uid != UID:
        assert decision.action in (Action.NOTHING, Action.DELETE_JOB)
    if decision.action is Action.CREATE_BATCH_JOB:
        assert seen is None
    if state in ("Succeeded", "Failed"):
        assert decision.terminal_state is None
        assert decision.restart is None
        assert decision.action in (Action.NOTHING, Action.DELETE_BATCH_JOB, Action.DELETE_JOB)
    if decision.restart is not None or decision.terminal_state is not None:
        assert decision.action is Action.NOTHING, "what came to pass is written before anything is done"
    if decision.restart is not None and decision.restart.counts_toward_max_restarts:
        assert restarts < max_restarts


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("status", [{}, {"restarts": 3, "restartsInARow": 2, "lastRestartTime": ago(30)}])
def test_another_number_of_workers_restarts_all_ranks_at_once_and_maxrestarts_does_not_count_it(workers, status):
    num_restarts = status.get("restarts", 0)
    spec = {"workers": workers, "maxRestarts": 0, "maxDisruptions": 0, "restartPolicy": "Never"}
    seen = {"batch_job": batch_job(num_workers=2, attempt=num_restarts), "spec": spec, "status": status}
    decision = decide(observed(**seen))
    assert decision.restart.cause.message == f"spec.workers changed from 2 to {workers}"
    assert decision.action is Action.NOTHING, "it is written down before the Job goes"
    written = after(**seen)
    assert (written.restarts, written.disruptions) == (num_restarts + 1, 1)
    assert (written.state, written.last_restart_time) == ("Restarting", ago(0))
    assert written.restarts_in_a_row == status.get("restartsInARow", 0)


def test_a_failure_is_the_cause_of_a_restart_even_if_the_number_of_workers_has_changed():
    failed = batch_job(num_workers=3, failure="Job has reached the specified backoff limit")
    decision = decide(observed(batch_job=failed, pods=(failed_pod(1),)))
    assert decision.restart.cause.message == "worker 1 failed"


def test_a_job_of_which_all_workers_have_ended_has_succeeded_whatever_their_number_is_now():
    decision = decide(observed(batch_job=batch_job(num_workers=3, is_complete=True)))
    assert decision.terminal_state.state == "Succeeded"
