"""The status: what it says, and what of it is an event as well."""

from dataclasses import replace
from datetime import timedelta

import pytest
from fixtures import NOW, STUCK, UID, after, ago, batch_job, failed_pod, observed, pod, rank0_status
from trimtab_api.trainer.v1 import status_pb2
from trimtab_operator.decisions.decide import Decision, TerminalState, decide
from trimtab_operator.decisions.pods import Problem
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.kube.events import events, manifest
from trimtab_operator.kube.text import write_time
from trimtab_operator.rank0.sanitize import Rank0Status
from trimtab_operator.status.build import report, unreadable
from trimtab_operator.status.throttle import seconds_to_write


@pytest.mark.parametrize(
    ("known", "state", "message"),
    [
        ({"batch_job": None, "status": {"startTime": None}}, "Starting", "0 of 2 workers are ready"),
        ({"batch_job": batch_job(ready=1)}, "Starting", "1 of 2 workers are ready"),
        (
            {"batch_job": batch_job(ready=1), "pods": (STUCK,)},
            "Starting",
            "1 of 2 workers are ready; worker 1 cannot start",
        ),
        ({"batch_job": batch_job(ready=2)}, "Running", "2 workers train"),
        (
            {"batch_job": batch_job(ready=2), "unreachable_reason": "rank 0 is silent"},
            "Running",
            "2 workers train; rank 0 is silent",
        ),
        ({"batch_job": batch_job(active=1, succeeded=1), "status": {"state": "Running"}}, "Running", "2 workers train"),
        ({"batch_job": batch_job(active=2), "status": {"state": "Running"}}, "Running", "2 workers train"),
        ({"batch_job": None, "status": {"state": "Running"}}, "Starting", "0 of 2 workers are ready"),
        ({"batch_job": batch_job(is_suspended=True), "spec": {"suspend": True}}, "Suspended", "suspended"),
        ({"batch_job": None, "spec": {"suspend": True}}, "Suspended", "suspended"),
        (
            {"batch_job": batch_job(active=2, ready=2), "spec": {"suspend": True}, "is_queued": True},
            "Running",
            "2 workers train",
        ),
        (
            {"batch_job": batch_job(is_suspended=True), "is_queued": True},
            "Suspended",
            "waits for its queue to admit it",
        ),
        ({"batch_job": batch_job(is_suspended=True)}, "Suspended", "its Job is suspended, by neither"),
        (
            {"batch_job": batch_job(failure="f"), "pods": (failed_pod(1),)},
            "Restarting",
            "all ranks restart together: worker 1",
        ),
        ({"batch_job": batch_job(), "status": {"restarts": 1}}, "Restarting", "0 of 2 workers are ready"),
        ({"batch_job": batch_job(is_complete=True)}, "Succeeded", "all 2 workers ended well"),
    ],
)
def test_state_and_message(known, state, message):
    status = after(**known)
    assert status.state == state
    assert status.message.startswith(message)
    obstacles = [each.blocking_reason.reason for each in known.get("pods", ()) if each.blocking_reason]
    assert status.condition("Ready").reason == (obstacles or [state])[0]


def test_what_rank_0_says_while_it_trains_stands_in_the_message():
    late = rank0_status(message="rank 1 comes 0.3 s after the others in 95% of the steps")
    known = {"batch_job": batch_job(active=2, ready=2)}
    assert after(rank0_status=late, **known).message.startswith("2 workers train; rank 1 comes 0.3 s after the others")
    assert after(rank0_status=rank0_status(), **known).message == "2 workers train"


def starting(message=""):
    """What is heard of ranks that have done no step yet."""
    return Rank0Status.sanitize(status_pb2.Status(state=status_pb2.STATE_STARTING, message=message))


WAITS = "waiting for ranks 2 and 3 of 4 to join"


@pytest.mark.parametrize(
    ("known", "status", "reason", "message"),
    [
        ({"rank0_status": starting(WAITS)}, "False", "WaitingForTraining", f"no step is done yet: {WAITS}"),
        ({"rank0_status": starting()}, "False", "WaitingForTraining", "no step is done yet: rank 0 does not say why"),
        ({}, "False", "WaitingForTraining", "no step is done yet: rank 0 has not reported"),
        ({"unreachable_reason": "no route"}, "Unknown", "Rank0Silent", "whether they train is not known: no route"),
        (
            {"rank0_status": starting(WAITS), "unreachable_reason": "gone"},
            "False",
            "WaitingForTraining",
            f"no step is done yet: {WAITS}",
        ),
    ],
)
def test_a_job_whose_workers_are_ready_runs_when_rank_0_has_said_that_steps_are_done(known, status, reason, message):
    ready = {"batch_job": batch_job(active=2, ready=2), "progress": Progress(), **known}
    first = after(**ready)
    told = first.condition("Ready")
    assert (first.state, told.status, told.reason) == ("Starting", status, reason)
    assert first.message == told.message == f"2 workers are ready, {message}"
    assert first.condition("Started").status == "True", "every worker has been ready"
    again = after(**{**ready, "batch_job": batch_job(attempt=1, ready=2), "status": {"restarts": 1}})
    assert (again.state, again.message) == ("Restarting", first.message)
    trains = after(
        batch_job=batch_job(active=2, ready=2), rank0_status=rank0_status(), status=first.model_dump(by_alias=True)
    )
    assert (trains.state, trains.condition("Ready").status, trains.message) == ("Running", "True", "2 workers train")
    assert [each.reason for each in events(first, trains)] == ["Running", "PlanChanged"]


def test_that_ranks_start_is_no_event_and_that_nobody_knows_is_one():
    before, ready = after(batch_job=batch_job()), {"batch_job": batch_job(ready=2), "progress": Progress()}
    assert list(events(before, after(**ready, rank0_status=starting()))) == []
    assert [each.reason for each in events(before, after(**ready, unreachable_reason="no route"))] == ["Rank0Silent"]


def test_a_job_that_ran_runs_for_the_next_operator_until_it_hears_otherwise():
    ran = after(batch_job=batch_job(ready=2)).model_dump(by_alias=True)
    assert after(batch_job=batch_job(ready=2), status=ran, progress=Progress()).state == "Running"
    again = {"status": ran | {"restarts": 1, "state": "Restarting"}, "progress": Progress()}
    assert after(batch_job=batch_job(attempt=1, ready=2), **again).state == "Restarting", (
        "another attempt has yet to train"
    )


def test_workers_that_are_waited_for_are_named():
    pods = [pod(n, is_ready=n not in (1, 3)) for n in range(4)]
    known = {"spec": {"workers": 4}, "pods": pods, "progress": Progress(), "rank0_status": starting("joining")}
    assert after(batch_job=batch_job(ready=2), **known).message == "2 of 4 workers are ready; waiting for workers 1, 3"
    assert after(batch_job=batch_job(ready=3), **known).message == "3 of 4 workers are ready", (
        "the Job knows of another already"
    )


IN_THE_WAY = (
    "waits for the Job digits to go: it belongs to something else; "
    "delete it, or create this TrainingJob under another name"
)


def test_what_is_in_the_way_is_told_with_the_remedy_before_a_job_runs_and_while_it_does():
    for before in (observed().status, after(batch_job=batch_job(ready=2))):
        theirs = batch_job(owner_uid="other", is_suspended=True, active=2, ready=2)
        blocked = after(batch_job=theirs, status=before.model_dump(by_alias=True))
        assert (blocked.state, blocked.message) == ("Pending", IN_THE_WAY)
        assert blocked.workers.ready == 0, "what it does is no business of this job's"
        ready = blocked.condition("Ready")
        assert (ready.status, ready.reason, ready.message) == ("False", "Blocked", IN_THE_WAY)
        (event,) = events(before, blocked)
        assert (event.kind, event.reason, event.message) == ("Warning", "Blocked", IN_THE_WAY)
        assert list(events(blocked, blocked)) == []


def test_what_is_in_the_way_and_going_asks_for_patience_alone():
    assert (
        after(batch_job=batch_job(owner_uid="other", is_deleting=True)).message
        == "waits for the Job digits, which is going"
    )


@pytest.mark.parametrize(
    "known",
    [
        {"batch_job": batch_job(ready=1)},
        {"batch_job": batch_job(ready=2)},
        {"batch_job": batch_job(is_complete=True)},
        {"batch_job": batch_job(failure="f"), "pods": (failed_pod(1),)},
        {"batch_job": batch_job(failure="f"), "pods": (failed_pod(1),), "spec": {"restartPolicy": "Never"}},
        {"batch_job": batch_job(), "status": after(batch_job=batch_job(is_suspended=True)).model_dump(by_alias=True)},
    ],
)
def test_every_condition_says_something(known):
    assert [each.type for each in after(**known).conditions if not each.message] == []


def test_a_restart_is_counted_once_and_says_why():
    known = {"batch_job": batch_job(failure="f"), "pods": (failed_pod(1),)}
    status = after(**known)
    assert (status.restarts, status.disruptions, status.last_restart_reason) == (1, 0, "worker 1 failed")
    again = after(**known, status=status.model_dump(by_alias=True))
    assert again.restarts == 1, "the Job of the attempt before is no reason for another"


def test_a_restart_that_waits_says_until_when():
    lost = {"batch_job": batch_job(attempt=1, failure="f"), "pods": (failed_pod(1),)}
    first = after(**lost, status={"restarts": 1, "restartsInARow": 1, "lastRestartTime": ago(30)})
    assert (first.restarts_in_a_row, first.last_restart_time) == (2, ago(-10))
    assert first.message == f"all ranks restart together at {ago(-10)}: worker 1 failed"
    for gone in (batch_job(attempt=1, is_deleting=True), None):
        waiting = after(batch_job=gone, status=first.model_dump(by_alias=True))
        assert (waiting.state, waiting.message) == ("Restarting", first.message)
    later = NOW + timedelta(seconds=10)
    begun = after(batch_job=batch_job(attempt=2), status=first.model_dump(by_alias=True), now=later)
    assert begun.message == "0 of 2 workers are ready"
    assert begun.last_restart_time == first.last_restart_time


def test_a_restart_that_waits_and_is_suspended_is_suspended():
    waiting = {"restarts": 2, "lastRestartTime": ago(-10)}
    assert after(batch_job=None, spec={"suspend": True}, status=waiting).message == "suspended"


def test_conditions_change_their_time_only_with_their_status():
    first = after(batch_job=batch_job(ready=1), now=NOW - timedelta(seconds=90))
    second = after(batch_job=batch_job(ready=0), status=first.model_dump(by_alias=True))
    third = after(batch_job=batch_job(ready=2), status=second.model_dump(by_alias=True))
    times = [each.condition("Ready").last_transition_time for each in (first, second, third)]
    assert times == [ago(90), ago(90), ago(0)]


def test_started_stays_true_while_ranks_restart():
    running = after(batch_job=batch_job(ready=2))
    restarting = after(batch_job=batch_job(attempt=0), status={**running.model_dump(by_alias=True), "restarts": 1})
    assert restarting.condition("Started").status == "True"


def test_what_keeps_a_job_from_running_again_is_a_reason_and_an_event_once():
    running = after(batch_job=batch_job(ready=2)).model_dump(by_alias=True)
    again = {"batch_job": batch_job(attempt=1), "status": {**running, "restarts": 1}}
    restarting = after(**again)
    assert restarting.condition("Ready").reason == "Restarting"
    again["status"] = restarting.model_dump(by_alias=True)
    stuck = after(**again, pods=(STUCK,))
    assert (stuck.state, stuck.condition("Started").status) == ("Restarting", "True")
    ready = stuck.condition("Ready")
    message = "0 of 2 workers are ready; worker 1 cannot start"
    assert (ready.status, ready.reason, ready.message) == ("False", "ImagePullBackOff", message)
    (event,) = events(restarting, stuck)
    assert (event.kind, event.reason, event.message) == ("Warning", "ImagePullBackOff", message)
    assert list(events(stuck, stuck)) == []
    runs = after(batch_job=batch_job(attempt=1, ready=2), status=stuck.model_dump(by_alias=True))
    assert [each.reason for each in events(stuck, runs)] == ["Running"]


def test_pods_that_were_refused_come_before_what_keeps_others_from_starting():
    refusal = Problem("FailedCreate", "the Job cannot make pods")
    status = after(batch_job=batch_job(), pods=(STUCK,), creation_error=refusal)
    assert status.message == "0 of 2 workers are ready; the Job cannot make pods"
    assert {status.condition(kind).reason for kind in ("Ready", "Started")} == {"FailedCreate"}


def test_of_two_obstacles_the_lowest_workers_is_told_whichever_pod_had_news_last():
    pods = (STUCK, pod(0, phase="Pending", blocking_reason=Problem("Unschedulable", "worker 0 cannot be placed")))
    told = {after(batch_job=batch_job(), pods=order).condition("Started").reason for order in (pods, pods[::-1])}
    assert told == {"Unschedulable"}


def test_what_kept_pods_of_the_attempt_before_from_starting_is_of_no_interest():
    status = after(batch_job=batch_job(), pods=(STUCK,), status={"restarts": 1})
    assert (status.message, status.condition("Ready").reason) == ("0 of 2 workers are ready", "Restarting")


LATE = pod(1, node="ghost", to_end_by=ago(31))


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_pod_that_does_not_end_is_told_with_the_remedy_whichever_attempt_waits_for_it(attempt):
    status = after(batch_job=batch_job(is_deleting=attempt == 0), pods=(LATE,), status={"restarts": 1 - attempt})
    said = "the pod of worker 1 on node ghost was deleted and has not ended"
    remedy = "if that node is gone, delete the Node, or the pod with --force"
    assert status.message == f"0 of 2 workers are ready; {said}; {remedy}"
    assert status.condition("Ready").reason == "PodDoesNotEnd"


def test_a_pod_that_has_only_just_to_have_ended_is_given_time():
    ending = pod(1, node="ghost", to_end_by=ago(29))
    status = after(batch_job=batch_job(is_deleting=True), pods=(ending,), status={"restarts": 1})
    assert status.message == "0 of 2 workers are ready"


def test_workers_that_are_no_longer_ready_are_not_said_to_train():
    ran = after(batch_job=batch_job(ready=2, active=2)).model_dump(by_alias=True)
    lost = (pod(0, node="a", is_unready=True), pod(1, node="b"))
    status = after(batch_job=batch_job(ready=1, active=2), pods=lost, status=ran)
    assert status.state == "Running"
    ready = status.condition("Ready")
    assert (ready.status, ready.reason) == ("False", "WorkersNotReady")
    assert ready.message == "worker 0 (on a) is not ready: a node may be away, or a readiness probe fails"
    well = after(batch_job=batch_job(ready=2, active=2), pods=(pod(0), pod(1)), status=status.model_dump(by_alias=True))
    assert well.condition("Ready").status == "True"


def test_a_worker_whose_monitor_ends_again_and_again_is_not_ready_for_that():
    ran = after(batch_job=batch_job(ready=2, active=2)).model_dump(by_alias=True)
    crashing = pod(
        0, is_unready=True, blocking_reason=Problem("CrashLoopBackOff", "container netmon ends again and again")
    )
    status = after(batch_job=batch_job(ready=1, active=2), pods=(crashing, pod(1)), status=ran)
    assert status.condition("Ready").message == "worker 0 is not ready: container netmon ends again and again"


def test_of_many_workers_that_are_not_ready_the_first_are_named():
    ran = after(batch_job=batch_job(ready=2, active=2)).model_dump(by_alias=True)
    status = after(batch_job=batch_job(active=2), pods=[pod(n, is_unready=True) for n in range(9)], status=ran)
    assert status.condition("Ready").message.startswith("workers 0, 1, 2, 3 and 5 others are not ready: a node")


def test_a_trainer_that_has_ended_leaves_no_worker_unready():
    ran = after(batch_job=batch_job(ready=2, active=2)).model_dump(by_alias=True)
    status = after(batch_job=batch_job(ready=0, active=2), pods=(pod(0), pod(1)), status=ran)
    assert (status.state, status.condition("Ready").status) == ("Running", "True")


def test_one_worker_trains_in_the_singular():
    assert after(batch_job=batch_job(ready=1), spec={"workers": 1}).message == "1 worker trains"


def test_a_suspended_job_has_no_start_time_and_gets_another():
    suspended = after(batch_job=batch_job(is_suspended=True), spec={"suspend": True})
    assert suspended.start_time is None
    resumed = after(batch_job=batch_job(is_suspended=True), status=suspended.model_dump(by_alias=True))
    assert resumed.condition("Suspended").status == "True", "until the Job has resumed"
    resumed = after(batch_job=batch_job(), status=resumed.model_dump(by_alias=True))
    assert resumed.condition("Suspended").status == "False"
    assert resumed.start_time == ago(0)


def resumed(restarted_at, waits=0):
    """What a job that was restarted says before, when and after it resumes; ``waits``: seconds to what is to come."""
    known = {"restarts": 1, "lastRestartTime": restarted_at, "state": "Restarting"}
    suspended = after(batch_job=None, spec={"suspend": True}, status=known)
    statuses, pods = [suspended], None if waits else batch_job(attempt=1)
    for seconds in (5, 6):
        at = NOW + timedelta(seconds=seconds)
        statuses.append(after(batch_job=pods, status=statuses[-1].model_dump(by_alias=True), now=at))
    return statuses


def test_a_job_that_was_restarted_and_resumes_is_starting_until_it_runs_and_an_event_says_so():
    suspended, at_once, later = resumed(ago(600))
    assert [each.state for each in (suspended, at_once, later)] == ["Suspended", "Starting", "Starting"]
    (event,) = events(suspended, at_once)
    assert (event.kind, event.reason) == ("Normal", "Resumed")
    assert list(events(at_once, later)) == []
    lost = {"batch_job": batch_job(attempt=1, failure="f"), "pods": (failed_pod(1),)}
    failed = after(**lost, status=later.model_dump(by_alias=True), now=NOW + timedelta(seconds=9))
    assert failed.state == "Restarting"
    known = {"status": failed.model_dump(by_alias=True), "now": NOW + timedelta(seconds=700)}
    assert after(batch_job=batch_job(attempt=2), **known).state == "Restarting", "it was resumed before that"


def test_a_job_that_resumes_before_its_restart_is_due_still_says_when():
    suspended, at_once, later = resumed(ago(-60), waits=60)
    assert [each.state for each in (suspended, at_once, later)] == ["Suspended", "Restarting", "Restarting"]
    assert at_once.message.startswith(f"all ranks restart together at {ago(-60)}")
    assert [each.reason for each in events(suspended, at_once)] == ["Resumed"]


def test_a_job_that_resumes_and_is_blocked_has_resumed_all_the_same():
    suspended = after(batch_job=None, spec={"suspend": True}, status={"restarts": 1, "lastRestartTime": ago(600)})
    seen = observed(batch_job=None, status=suspended.model_dump(by_alias=True))
    blocked = report(seen, Decision(blocking_reason="the API server refuses: quota"))
    assert blocked.state == "Pending"
    assert [each.reason for each in events(suspended, blocked)] == ["Blocked", "Resumed"]


def test_training_is_told_in_units_that_humans_write():
    status = after(batch_job=batch_job(ready=2), rank0_status=rank0_status())
    assert (status.step, status.loss, status.step_time) == (12, 0.123457, "120ms")
    assert (status.plan.ratio, status.plan.collective, status.plan.adopted_at_step) == ("0.01", "all-gather", 7)
    assert (status.network.latency, status.network.bandwidth) == ("5ms", "1Gbps")


def test_progress_is_told_from_when_the_last_step_was_heard():
    first = after(batch_job=batch_job(ready=2), rank0_status=rank0_status(gain=0.76543))
    assert (first.gain, first.last_progress_time) == (0.765, write_time(NOW))
    later = NOW + timedelta(seconds=40)
    known = {"batch_job": batch_job(ready=2), "status": first.model_dump(by_alias=True), "now": later}
    assert after(rank0_status=rank0_status(), **known).last_progress_time == write_time(NOW), "no step further"
    assert after(rank0_status=rank0_status(step=13), **known).last_progress_time == write_time(later)
    assert after(batch_job=batch_job(ready=2), rank0_status=rank0_status(step=0)).last_progress_time is None, (
        "no step is done yet"
    )


def test_figures_stay_when_rank_0_is_silent():
    told = after(batch_job=batch_job(ready=2), rank0_status=rank0_status())
    silent = after(batch_job=batch_job(is_complete=True), status=told.model_dump(by_alias=True))
    assert (silent.step, silent.plan) == (12, told.plan)


def test_a_network_whose_bandwidth_is_not_yet_known_is_not_shown():
    assert after(rank0_status=rank0_status(bandwidth=0)).network is None


def test_a_network_at_a_tenth_of_its_best_is_degraded_and_an_event_says_so():
    good = after(batch_job=batch_job(ready=2), rank0_status=rank0_status())
    bad = after(
        batch_job=batch_job(ready=2), rank0_status=rank0_status(bandwidth=12.5e6), status=good.model_dump(by_alias=True)
    )
    assert good.condition("NetworkDegraded").status == "False"
    assert bad.condition("NetworkDegraded").status == "True"
    (event,) = events(good, bad)
    assert (event.kind, event.reason) == ("Warning", "NetworkDegraded")
    assert event.message == "the slowest link carries 100Mbps, the best of late is 1Gbps"
    again = after(batch_job=batch_job(ready=2), rank0_status=rank0_status(), status=bad.model_dump(by_alias=True))
    assert [each.reason for each in events(bad, again)] == ["NetworkRecovered"]


def test_a_final_status_never_changes():
    done = after(batch_job=batch_job(is_complete=True))
    seen = observed(batch_job=None, status=done.model_dump(by_alias=True), rank0_status=rank0_status())
    assert report(seen, decide(seen)) == done


def test_an_edit_of_a_finished_job_has_been_seen_and_changes_nothing_else():
    done = after(batch_job=batch_job(is_complete=True))
    edited = after(batch_job=None, status=done.model_dump(by_alias=True), generation=2, rank0_status=rank0_status())
    assert edited == done.model_copy(update={"observed_generation": 2})
    assert seconds_to_write(done, edited, NOW, 60.0) == 0.0
    assert list(events(done, edited)) == []


def test_a_finished_job_whose_time_is_up_is_not_written_to_any_more():
    done = after(batch_job=batch_job(is_complete=True)).model_dump(by_alias=True)
    known = {"batch_job": None, "status": done, "generation": 2, "now": NOW + timedelta(seconds=60)}
    assert after(**known, spec={"ttlSecondsAfterFinished": 60}).observed_generation == 1
    assert after(**known, spec={"ttlSecondsAfterFinished": 61}).observed_generation == 2


def test_the_last_figures_are_those_that_rank_0_said_at_the_end():
    running = after(batch_job=batch_job(ready=2), rank0_status=rank0_status()).model_dump(by_alias=True)
    last = rank0_status(step=132, loss=0.01, state=status_pb2.STATE_SUCCEEDED)
    ended = after(batch_job=batch_job(is_complete=True), status=running, rank0_status=last)
    assert (ended.state, ended.step, ended.loss) == ("Succeeded", 132, 0.01)


def test_what_blocks_a_job_is_a_condition():
    seen = observed(batch_job=None)
    status = report(seen, Decision(blocking_reason="the API server refuses: quota"))
    assert (status.state, status.condition("Started").reason) == ("Pending", "Blocked")
    assert status.message == "the API server refuses: quota"


def test_a_job_that_can_no_longer_be_read_stays_as_it_was_and_says_why_and_what_to_do():
    ran = after(batch_job=batch_job(ready=2), rank0_status=rank0_status())
    status = unreadable(ran, "spec.workers: '0': must be at least 1", 2, NOW)
    ready = status.condition("Ready")
    assert (ready.status, ready.reason, ready.observed_generation) == ("Unknown", "UnreadableSpec", 2)
    assert ready.message == status.message
    assert status.message.startswith(
        "spec.workers: '0': must be at least 1; the operator cannot read this job and leaves"
    )
    kept = {"conditions": (), "message": "", "observed_generation": 0}
    assert status.model_copy(update=kept) == ran.model_copy(update=kept)
    assert {each for each in status.conditions if each.type != "Ready"} == {
        each for each in ran.conditions if each.type != "Ready"
    }
    (event,) = events(ran, status)
    assert (event.kind, event.reason, event.message) == ("Warning", "UnreadableSpec", status.message)
    assert list(events(status, unreadable(status, "spec.workers: '0': must be at least 1", 2, NOW))) == []


def test_a_job_that_has_ended_has_ended_whether_or_not_it_can_be_read():
    done = after(batch_job=batch_job(is_complete=True))
    assert unreadable(done, "mend it", 2, NOW) == done.model_copy(update={"observed_generation": 2})


LONG = "worker 1 failed: " + 100_000 * "x" + "; mend it"


def test_long_words_lose_their_middle_and_not_the_remedy_wherever_they_are_told():
    lost = {"batch_job": batch_job(failure="f"), "pods": (pod(1, phase="Failed", failure=Problem("Error", LONG)),)}
    for known in (lost, {**lost, "spec": {"restartPolicy": "Never"}}):
        status = after(**known)
        said = [
            status.message,
            *(each.message for each in status.conditions if each.type not in ("Started", "CheckpointFailing")),
        ]
        said += [
            manifest(each, "team", "digits", UID, ago(0), "0")["message"] for each in events(observed().status, status)
        ]
        assert all(len(each) <= 1024 for each in (*said, status.last_restart_reason))
        assert all("worker 1 failed: xxx" in each for each in said)
        assert all(each.endswith(("xxx; mend it", "xxx; mend it (restartPolicy is Never)")) for each in said)


def test_an_outcome_is_a_condition_with_its_reason():
    seen = replace(observed(), batch_job=None)
    status = report(seen, Decision(terminal_state=TerminalState("Failed", "InvalidTemplate", "spec.template: no")))
    assert (status.state, status.condition("Failed").reason) == ("Failed", "InvalidTemplate")
    assert status.completion_time == ago(0)
