"""What the status says of a job's checkpoints: the last whole one, and that they cannot be written."""

import pytest
from fixtures import NOW, after, ago, batch_job, observed, rank0_status
from trimtab_api.trainer.v1 import status_pb2
from trimtab_operator.decisions.decide import decide
from trimtab_operator.kube.events import events
from trimtab_operator.rank0.sanitize import Rank0Status
from trimtab_operator.status.build import report
from trimtab_operator.status.throttle import brings_news, seconds_to_write

KEEPS = {"checkpoint": {"path": "/c"}}
FULL = "the checkpoint of step 120 could not be written: No space left on device"


def saved(step=120, age=5.0, num_bytes=2**30, seconds=1.23456):
    return status_pb2.Checkpoint(step=step, age_seconds=age, bytes=num_bytes, seconds=seconds)


def status_after(before=None, **said):
    known = {"status": before.model_dump(by_alias=True)} if before else {}
    return after(spec=KEEPS, batch_job=batch_job(ready=2), rank0_status=rank0_status(**said), **known)


def failing(status):
    condition = status.condition("CheckpointFailing")
    return condition and (condition.status, condition.reason, condition.message)


def test_the_last_checkpoint_is_told_with_its_step_time_and_size():
    status = status_after(checkpoint=saved())
    assert status.model_dump(mode="json", by_alias=True)["checkpoint"] == {
        "step": 120,
        "time": ago(5),
        "bytes": 2**30,
        "seconds": 1.23,
    }
    assert failing(status) == ("False", "Written", "the last checkpoint is whole")


def test_its_time_stays_however_late_it_is_looked_at_and_changes_with_the_next_one():
    first = status_after(checkpoint=saved(age=5))
    again = status_after(first, checkpoint=saved(age=1))
    assert again.checkpoint == first.checkpoint
    assert status_after(first, checkpoint=saved(step=240, age=1)).checkpoint.time == ago(1)


def test_a_restart_keeps_the_checkpoint_from_which_it_goes_on():
    first = status_after(checkpoint=saved())
    assert status_after(first, step=121).checkpoint == first.checkpoint
    starting = after(spec=KEEPS, status=first.model_dump(by_alias=True), rank0_status=None)
    assert (starting.checkpoint, failing(starting)) == (first.checkpoint, failing(first))


def test_checkpoints_that_fail_are_a_condition_with_the_cause_until_one_is_whole():
    good = status_after(checkpoint=saved())
    bad = status_after(good, checkpoint=saved(), checkpoint_problem=FULL)
    assert failing(bad) == ("True", "NotWritten", FULL)
    assert bad.checkpoint == good.checkpoint
    assert [(each.kind, each.reason, each.message) for each in events(good, bad)] == [
        ("Warning", "CheckpointFailing", FULL)
    ]
    mended = status_after(bad, checkpoint=saved(step=240))
    assert failing(mended) == ("False", "Written", "the last checkpoint is whole")
    assert [(each.kind, each.reason) for each in events(bad, mended)] == [("Normal", "CheckpointRecovered")]


def test_the_first_checkpoint_may_fail_too():
    new = status_after()
    assert failing(new) is None, "nothing is known of it"
    bad = status_after(new, checkpoint_problem=FULL)
    assert (failing(bad)[0], bad.checkpoint) == ("True", None)
    assert [each.reason for each in events(new, bad)] == ["CheckpointFailing"]
    silent = report(seen := observed(spec=KEEPS, status=bad.model_dump(by_alias=True)), decide(seen))
    assert failing(silent) == failing(bad), "a restart has written none yet"


def test_checkpoints_that_fail_are_news_of_training_which_waits_for_its_budget():
    good = status_after(checkpoint=saved()).model_copy(update={"last_update_time": ago(3)})
    bad = status_after(good, checkpoint=saved(), checkpoint_problem=FULL)
    assert brings_news(good, bad)
    assert seconds_to_write(good, bad, NOW, 60.0, seconds_to_news=5.0) == 5.0
    newer = status_after(good, checkpoint=saved(step=240))
    assert not brings_news(good, newer)
    assert seconds_to_write(good, newer, NOW, 60.0) == 58.0


@pytest.mark.parametrize("said", [{}, {"checkpoint": saved()}])
def test_the_status_of_a_job_without_checkpoints_says_that_a_restart_begins_anew(said):
    status = after(batch_job=batch_job(ready=2), rank0_status=rank0_status(**said))
    assert failing(status) == ("False", "NoCheckpoints", "the job has no spec.checkpoint: a restart begins anew")


@pytest.mark.parametrize(
    "bad", [{"step": 2**60}, {"num_bytes": 2**60}, {"age": -1.0}, {"age": float("nan")}, {"seconds": float("inf")}]
)
def test_a_checkpoint_that_cannot_be_true_is_as_if_it_had_not_been_said(bad):
    assert Rank0Status.sanitize(status_pb2.Status(checkpoint=saved(**bad))).checkpoint is None
