"""What a watcher hears at once, and what can wait."""

import pytest
from trimtab.status.status_reader import is_final, is_news
from trimtab_api.trainer.v1 import status_pb2


def status(state=status_pb2.STATE_RUNNING, plan=("dense-ring", 0), stale=False, step=1, reason=""):
    return status_pb2.Status(
        state=state,
        step=step,
        plan=status_pb2.Plan(name=plan[0], version=plan[1], reason=reason),
        network=status_pb2.Network(stale=stale),
    )


@pytest.mark.parametrize(
    "change",
    [{"state": status_pb2.STATE_SUCCEEDED}, {"plan": ("0.01/all-gather", 1)}, {"stale": True}],
    ids=["state", "plan", "network"],
)
def test_a_change_is_news(change):
    assert is_news(status(), status(**change))


@pytest.mark.parametrize("change", [{"step": 2}, {"reason": "it stays the best"}], ids=["step", "reason"])
def test_progress_is_none(change):
    assert not is_news(status(), status(**change))


def test_success_and_failure_are_final():
    states = status_pb2.State.values()
    assert [each for each in states if is_final(status(state=each))] == [
        status_pb2.STATE_SUCCEEDED,
        status_pb2.STATE_FAILED,
    ]
