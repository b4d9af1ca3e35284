"""How long a step takes when buffers are compressed and cross the network while backward still runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.control.cost_model import step_time as overlap
from trimtab.control.cost_model.step_time import step_seconds
from trimtab.plan import schedules as schedule
from trimtab.plan.plan import Plan
from trimtab.plan.profile import BucketTimes, Profile
from trimtab.plan.schedules import Iteration, Schedule, Send
from trimtab.plan.timeline import BufferTimes, Readiness
from trimtab.plan.timetable import Timetable

COMPUTE = 0.3
buffers = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=8)


def of(times, schedule="wait-free", local_steps=0, compute=COMPUTE, shares=None):
    """Of buffers of one size, with these seconds of compression and on the wire."""
    shares = shares or [1 / 3 + 2 / 3 * (i + 1) / len(times) for i in range(len(times))]
    compress, wire = zip(*times, strict=True)
    buffers = BufferTimes([compute * share for share in shares], compress, wire)
    return step_seconds(compute, buffers, schedule, local_steps=local_steps)


def profile(backward, lead=0.2):
    buckets = (BucketTimes(0.01, 0.1),)
    return Profile(9, 3, Plan(0.01, "all-gather"), lead, tuple(backward), (), buckets, 1.0, 2.0, 3.0)


# Wait-free ----------------------------------------------------------------------------------------------


def test_one_buffer_hides_nothing_and_many_hide_what_fits():
    assert of([(0.1, 0.1)]) == pytest.approx(0.5)
    assert of([(0.0, 0.1), (0.0, 0.1)]) == pytest.approx(0.4)


def test_a_buffer_is_compressed_while_the_one_before_it_is_on_the_wire():
    assert of([(0.1, 0.1), (0.1, 0.1)], compute=0.0) == pytest.approx(0.3)
    assert of([(0.1, 0.3), (0.1, 0.1)], compute=0.0) == pytest.approx(0.5)


@given(st.floats(0.001, 10), buffers)
def test_a_step_takes_at_least_each_of_its_parts_and_at_most_their_sum(compute, times):
    seconds = of(times, compute=compute)
    compress, wire = (sum(each) for each in zip(*times, strict=True))
    assert seconds >= max(compute, compress, wire) - 1e-9
    assert seconds <= compute + compress + wire + 1e-9


@given(buffers)
def test_exchanging_after_backward_is_never_shorter(times):
    late = of(times, "after-backward")
    assert late >= of(times) - 1e-9
    assert late == pytest.approx(COMPUTE + of(times, compute=0.0))


# Other schedules and sources ----------------------------------------------------------------------------


def test_updates_of_local_steps_are_exchanged_once_a_round_and_hide_behind_nothing():
    assert of([(0.1, 0.3)], local_steps=4) == pytest.approx(COMPUTE + 0.1)
    assert of([(0.1, 0.3)], local_steps=1) == pytest.approx(of([(0.1, 0.3)], "after-backward"))


def test_updates_of_a_round_cross_by_the_links_of_their_timetable():
    startup = (0.9, 0.9)
    times = BufferTimes((0.1, 0.2), (0.0, 0.0), (1.0, 1.0), startup=startup)
    sends = tuple(Send(bucket, 0, link=bucket) for bucket in (1, 0))
    side_by_side = Timetable((), (Iteration(sends, 0),))
    seconds = [step_seconds(COMPUTE, times, "priority", made, local_steps=4) for made in (None, side_by_side)]
    assert seconds == pytest.approx([COMPUTE + 2.0 / 4, COMPUTE + 1.1 / 4])


@given(st.integers(1, 16), buffers)
def test_under_overlapped_rounds_an_exchange_shows_where_it_takes_longer_than_the_next_round(local_steps, times):
    compress, wire = (sum(each) for each in zip(*times, strict=True))
    round_seconds = local_steps * of(times, "overlap", local_steps)
    assert (
        compress + local_steps * COMPUTE - 1e-9
        <= round_seconds
        <= local_steps * of(times, "wait-free", local_steps) + 1e-9
    )
    if wire <= local_steps * COMPUTE:
        assert round_seconds == pytest.approx(compress + local_steps * COMPUTE)


def test_a_schedule_that_sends_a_bucket_every_second_iteration_takes_the_mean_of_both(every_second_iteration):
    both, one = of([(0.0, 0.2), (0.0, 0.2)]), of([(0.0, 0.2)], shares=[2 / 3])
    assert of([(0.0, 0.2), (0.0, 0.2)], every_second_iteration) == pytest.approx((both + one) / 2)


def test_an_exchange_that_carries_several_steps_counts_for_each_by_its_share(every_second_iteration):
    assert overlap.exchanges_a_step(3) == 1
    assert overlap.exchanges_a_step(3, local_steps=4) == 1 / 4
    assert overlap.exchanges_a_step(2, every_second_iteration) == 3 / 4


@pytest.fixture
def every_second_iteration(monkeypatch):
    """The name of a schedule that sends its second bucket in odd iterations alone."""

    class EverySecond(Schedule):
        name = "every-second"

        def iteration(self, t):
            return Iteration(tuple(Send(bucket, t) for bucket in range(self.num_buckets) if t % 2 or not bucket), t)

    create = schedule.create
    monkeypatch.setattr(
        schedule, "create", lambda name, n: EverySecond(n) if name == "every-second" else create(name, n)
    )
    overlap._of_schedule.cache_clear()
    yield EverySecond.name
    overlap._of_schedule.cache_clear()


# When buffers are complete ------------------------------------------------------------------------------


def test_without_a_profile_backward_takes_in_proportion_to_the_elements_and_forward_half_of_it():
    ready = Readiness.by_size((100, 300))
    assert [ready.of_buffer(stop) for stop in (100, 400)] == pytest.approx([1 / 3 + 2 / 3 / 4, 1])


def test_a_tensors_gradient_is_complete_as_a_whole():
    ready = Readiness.by_size((100, 300))
    assert ready.of_buffer(1) == ready.of_buffer(100)
    assert ready.of_buffer(101) == ready.of_buffer(400) == 1


def test_with_one_gradients_come_when_they_did_while_it_was_measured():
    ready = Readiness.measured(profile([0.3, 0.1], lead=0.1), (100, 300))
    assert [ready.of_buffer(stop) for stop in (100, 400)] == pytest.approx([(0.1 + 0.3) / 0.5, 1])


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(1e-6, 1)), min_size=1, max_size=20))
def test_gradients_come_in_order_and_the_last_with_the_end_of_the_computation(tensors):
    sizes, seconds = zip(*tensors, strict=True)
    for ready in (Readiness.by_size(sizes), Readiness.measured(profile(seconds), sizes)):
        shares = [ready.of_buffer(stop) for stop in range(1, sum(sizes) + 1, 7)]
        assert shares == sorted(shares)
        assert ready.of_buffer(sum(sizes)) == pytest.approx(1)
