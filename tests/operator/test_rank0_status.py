"""The boundary to tenants: whatever rank 0 says, what is kept of it can be stored and shown."""

import json
import math

import pytest
from fixtures import NOW, UID, after, ago, batch_job, rank0_status, said
from hypothesis import given
from hypothesis import strategies as st
from trimtab_api.trainer.v1 import status_pb2
from trimtab_operator.kube.events import events, manifest
from trimtab_operator.rank0.sanitize import LARGEST_COUNT, Rank0Status
from trimtab_operator.status.throttle import seconds_to_write

floats = st.floats(allow_nan=True, allow_infinity=True, width=64)
counts = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50) | st.just("x" * 60_000)
plans = st.builds(
    status_pb2.Plan,
    version=counts,
    name=texts,
    ratio=floats,
    collective=texts,
    sparsifier=texts,
    reason=texts,
    adopted_at_step=counts,
)
networks = st.builds(
    status_pb2.Network,
    revision=counts,
    latency_seconds=floats,
    bandwidth_bytes_per_second=floats,
    stale=st.booleans(),
)
checkpoints = st.builds(status_pb2.Checkpoint, step=counts, age_seconds=floats, bytes=counts, seconds=floats)
messages = st.builds(
    status_pb2.Status,
    checkpoint=st.none() | checkpoints,
    checkpoint_problem=texts,
    state=st.integers(-(2**31), 2**31 - 1),
    message=texts,
    step=counts,
    loss=st.none() | floats,
    step_seconds=floats,
    gain=floats,
    plan=st.none() | plans,
    network=st.none() | networks,
)
WITH_CHECKPOINTS = {"checkpoint": {"path": "/c"}}
DEADLINE = {"activeDeadlineSeconds": 60}


def numbers_and_texts(value):
    """All that a status holds, however deep."""
    match value:
        case dict():
            return [each for inner in value.values() for each in numbers_and_texts(inner)]
        case list():
            return [each for inner in value for each in numbers_and_texts(inner)]
        case _:
            return [value]


@given(first=messages, then=messages)
def test_whatever_rank_0_says_the_status_can_be_stored_and_its_events_too(first, then):
    before = after(batch_job=batch_job(ready=2), spec=WITH_CHECKPOINTS, rank0_status=Rank0Status.sanitize(first))
    status = after(
        batch_job=batch_job(ready=2),
        spec=WITH_CHECKPOINTS,
        rank0_status=Rank0Status.sanitize(then),
        status=before.model_dump(mode="json", by_alias=True),
    )
    written = status.model_dump(mode="json", by_alias=True)
    for each in numbers_and_texts(written):
        if isinstance(each, int | float):
            assert math.isfinite(each)
            assert not isinstance(each, int) or abs(each) <= LARGEST_COUNT
        elif isinstance(each, str):
            assert len(each) <= 1024
            assert each.isprintable()
    assert len(json.dumps(written, allow_nan=False)) < 20_000
    for event in events(before, status):
        assert len(json.dumps(manifest(event, "team", "digits", UID, ago(0), ""))) < 10_000


@given(messages)
def test_whatever_rank_0_says_the_deadline_is_kept_and_written_at_once(message):
    runs = after(batch_job=batch_job(ready=2)).model_dump(by_alias=True) | {
        "startTime": ago(60),
        "lastUpdateTime": ago(0),
    }
    status = after(batch_job=batch_job(ready=2), rank0_status=Rank0Status.sanitize(message), status=runs, spec=DEADLINE)
    assert (status.state, status.condition("Failed").reason) == ("Failed", "DeadlineExceeded")
    before = after(batch_job=batch_job(ready=2), status=runs).model_copy(update={"last_update_time": ago(0)})
    assert seconds_to_write(before, status, NOW, 60.0, seconds_to_news=1e9) == 0.0


@pytest.mark.parametrize(
    "bad",
    [
        {"bandwidth": math.inf},
        {"bandwidth": math.nan},
        {"bandwidth": -1.0},
        {"bandwidth": 1e300},
        {"step": 2**64 - 1},
        {"step_seconds": math.nan},
        {"step_seconds": -math.inf},
        {"plan_version": 2**64 - 1},
    ],
)
def test_a_figure_that_cannot_be_true_is_as_if_it_had_not_been_said(bad):
    good = after(batch_job=batch_job(ready=2), rank0_status=rank0_status())
    status = after(
        batch_job=batch_job(ready=2), rank0_status=rank0_status(**bad), status=good.model_dump(by_alias=True)
    )
    assert status.model_copy(update={"conditions": ()}) == good.model_copy(update={"conditions": ()})


def test_a_loss_that_is_no_number_any_more_takes_the_last_good_one_from_view():
    good = after(batch_job=batch_job(ready=2), rank0_status=rank0_status())
    for loss in (math.nan, math.inf, 1e300):
        status = after(
            batch_job=batch_job(ready=2), rank0_status=rank0_status(loss=loss), status=good.model_dump(by_alias=True)
        )
        assert (good.loss, status.loss, status.step) == (0.123457, None, 12)


def test_a_script_that_passes_a_loss_now_and_then_keeps_the_last_one_in_view():
    good = after(batch_job=batch_job(ready=2), rank0_status=rank0_status())
    silent = Rank0Status.sanitize(status_pb2.Status(step=13))
    assert (
        after(batch_job=batch_job(ready=2), rank0_status=silent, status=good.model_dump(by_alias=True)).loss
        == good.loss
    )


def test_a_reason_of_megabytes_keeps_both_its_ends():
    message = said()
    message.plan.reason = "it is " + 3_000_000 * "x" + " faster"
    reason = Rank0Status.sanitize(message).plan.reason
    assert (len(reason), reason[:9], reason[-9:]) == (512, "it is xxx", "xx faster")


def test_what_would_move_a_terminals_cursor_or_turn_text_around_is_replaced():
    message = status_pb2.Status(message="waiting\n\tfor \x1b[2Jrank\N{RIGHT-TO-LEFT OVERRIDE}s 2\x00")
    assert Rank0Status.sanitize(message).message == "waiting for �[2Jrank�s 2�"
