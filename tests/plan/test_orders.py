"""Orders by urgency, and the ones that are not; what planners make of profiles; timetables as they travel."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate, permutations

import pytest
from drawn import even, step_times
from hypothesis import given
from hypothesis import strategies as st
from trimtab.papers.bytescheduler import priority
from trimtab.papers.deft import queues
from trimtab.papers.us_byte import us_byte
from trimtab.plan import schedules as schedule
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import ModuleTimes, Profile
from trimtab.plan.schedules import StepFacts, planned
from trimtab.plan.schedules.base import split
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.plan.timetable import Iteration, Send, Timetable
from trimtab_api.errors import UserError

SIZES = (1_000_000, 400, 2_000_000, 3_000_000)


def wait_free(num_buckets):
    return Timetable((), (Iteration(tuple(Send(bucket, 0) for bucket in range(num_buckets)), 0),))


def sends_of(made):
    (iteration,) = made.cycle
    return iteration.sends


@given(step_times())
def test_by_urgency_each_bucket_goes_once_and_what_is_after_backward_may_arrive_in_the_next_forward_pass(times):
    sends = sends_of(priority.timetable(times))
    assert sorted(send.bucket for send in sends) == list(range(len(times.wire)))
    late = [send.arrives == "forward" for send in sends]
    assert late == sorted(late), "those come last, in the order in which they are needed"
    after = [send.bucket for send in sends if send.arrives == "forward"]
    assert after == sorted(after, reverse=True)
    assert [send.after for send in sends].count("backward") == 1


def test_the_most_urgent_of_those_that_are_complete_goes_next():
    times = StepTimes((1.0,) * 4, (1.0, 1.0, 1.0, 9.0), (0.0,) * 4, (2.5, 1.0, 1.0, 1.0))
    assert [send.bucket for send in sends_of(priority.timetable(times))] == [0, 2, 1, 3]


@given(step_times(most_buckets=8))
def test_an_order_that_need_not_be_by_urgency_is_never_longer(times):
    by_urgency, unlike = priority.timetable(times), us_byte.timetable(times)
    assert times.step_seconds(unlike) <= times.step_seconds(by_urgency) + 1e-9


def test_a_long_bucket_goes_first_where_it_hides_behind_backward_as_a_more_urgent_one_would_not():
    times = StepTimes((0.5, 0.5, 0.5, 3.5), (0.5, 1.5, 1.0, 3.0), (0.0,) * 4, (3.0, 3.5, 2.0, 0.5))
    orders = [[send.bucket for send in sends_of(each.timetable(times))] for each in (priority, us_byte)]
    assert orders == [[0, 2, 1, 3], [0, 1, 3, 2]]
    by_urgency, unlike = (times.step_seconds(each.timetable(times)) for each in (priority, us_byte))
    assert by_urgency > 1.1 * unlike


@given(step_times(most_buckets=4))
def test_no_other_order_is_much_better(times):
    """Of all orders in which nothing waits for a bucket that is not complete."""
    complete = list(accumulate(times.backward))
    best = min(
        times.step_seconds(priority.timetable(times, lambda sent, ready, o=order: next(b for b in o if b in ready)))
        for order in permutations(range(len(complete)))
    )
    assert times.step_seconds(us_byte.timetable(times)) <= 1.1 * best + 1e-9


@pytest.mark.parametrize("order", [priority, us_byte])
def test_a_second_link_takes_what_it_brings_sooner(order):
    one = even(8, 2.0)
    two = replace(one, link_slowness=(1.0, 1.65))
    sends = sends_of(order.timetable(two))
    assert sorted(send.bucket for send in sends) == list(range(8))
    by_link = [sum(send.link == link for send in sends) for link in (0, 1)]
    assert by_link[0] > by_link[1] > 0
    assert two.step_seconds(order.timetable(two)) < 0.8 * one.step_seconds(order.timetable(one))


@given(step_times(), st.sampled_from([2, 4]))
def test_under_a_credit_each_bucket_goes_once_and_bytes_take_what_they_take(times, credit):
    latent = replace(times, startup=0.5 * min(times.wire))
    made = priority.timetable(latent, num_links=credit)
    sends = sends_of(made)
    assert sorted(send.bucket for send in sends) == list(range(len(times.wire)))
    assert {send.link for send in sends} <= set(range(credit))
    bytes_alone = sum(times.wire) - len(times.wire) * latent.startup
    seconds = latent.step_seconds(made)
    assert seconds >= max(sum(times.forward) + sum(times.backward), bytes_alone) - 1e-9
    assert seconds <= sum(times.forward) + sum(times.backward) + sum(times.wire) + sum(times.compress) + 1e-9


def test_where_parts_wait_for_latency_a_credit_is_chosen_and_shortens_steps():
    cuts, slow = (0, 1_000_000, 1_000_400, 3_000_400), facts(latency=0.05)
    assert planned("priority", cuts, profile=profile(), facts=slow).timetable.num_links == 1
    shared = replace(slow, shares_interface=True)
    chosen, alone = (planned(spec, cuts, profile=profile(), facts=shared) for spec in ("priority", "priority:credit=1"))
    assert chosen.timetable.num_links > alone.timetable.num_links == 1
    seconds = [shared.times(profile(), each.cuts).step_seconds(each.timetable) for each in (chosen, alone)]
    assert seconds[0] < 0.9 * seconds[1]
    near = replace(facts(latency=2e-5), shares_interface=True)
    assert planned("priority", cuts, profile=profile(), facts=near).timetable.num_links == 1, "nothing waits there"
    assert planned("priority:credit=4", cuts, profile=profile(), facts=near).timetable.num_links > 1
    over_two = replace(shared, link_slowness=(1.0, 1.5))
    assert planned("priority:credit=4", (0,), profile=profile(), facts=over_two).timetable.num_links <= 2


@given(step_times())
def test_a_step_takes_at_least_its_parts_and_at_most_their_sum(times):
    compute, exchanges = sum(times.forward) + sum(times.backward), sum(times.wire)
    for made in (wait_free(len(times.wire)), priority.timetable(times)):
        seconds = times.step_seconds(made)
        assert seconds >= max(compute, exchanges) - 1e-9
        assert seconds <= compute + exchanges + sum(times.compress) + 1e-9


def profile(lead=0.1, loss=1.0):
    starts = [0, *accumulate(SIZES)]
    modules = [ModuleTimes(f"m{i}", starts[i], starts[i + 1], 0.02, 0.05) for i in reversed(range(4))]
    return Profile(
        9,
        5,
        Plan.parse("dense"),
        lead,
        (0.05, 0.001, 0.05, 0.05),
        tuple(modules),
        (),
        loss,
        1e-4,
        1e-3,
        learning_rate=0.01,
    )


def facts(seconds_per_element=3e-8, latency=1e-3, is_sgd=True):
    return StepFacts(SIZES, lambda size: 0.0, lambda size: latency + size * seconds_per_element, is_sgd)


def test_times_of_buckets_are_those_of_their_tensors_and_modules():
    times = facts().times(profile(), (0, 500_000, 1_000_000, 3_000_400))
    assert times.backward == pytest.approx((0.05, 0.0, 0.051, 0.05)), "a tensor's gradient is complete as a whole"
    forward = [0.1 * share for share in (0.25, 0.0, 0.5, 0.25)]
    assert times.forward == pytest.approx(forward), "a module waits for the last of its buckets"
    assert times.wire[0] == pytest.approx(1e-3 + 0.015)


@pytest.mark.parametrize(
    "spec", ["priority", "us-byte", "deft:merged=mean", "deft:merged=sum", "priority:partition=300000"]
)
def test_a_planned_timetable_is_followed_and_travels_with_its_plan(spec):
    made = planned(spec, (0, 1_000_400), profile=profile(), facts=facts())
    assert made.timetable is not None
    assert {0, 1_000_400} <= set(made.cuts), "buffers are cut further, and never joined"
    plan = Plan(
        1.0, "dense-ring", fusion=FusionPlan(made.cuts, planner="single"), schedule=spec, timetable=made.timetable
    )
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert "timetable" not in plan.name
    followed = schedule.create(spec, len(made.cuts), made.timetable)
    assert followed.averages == (spec == "deft:merged=mean")
    assert [followed.iteration(t) for t in range(40)] == [made.timetable.iteration(t) for t in range(40)]


def test_before_steps_were_profiled_planned_schedules_are_as_wait_free():
    assert planned("deft", (0, 7), profile=None, facts=facts()).timetable is None
    assert planned("wait-free", (0, 7), profile=profile(), facts=facts()).timetable is None
    sends = schedule.create("deft", 3).iteration(5).sends
    assert sends == schedule.create("wait-free", 3).iteration(5).sends


def test_a_timetable_of_more_buckets_than_there_are_is_refused():
    with pytest.raises(UserError, match="4 buckets, and there are 1"):
        Plan(1.0, "dense-ring", schedule="priority", timetable=wait_free(4))


def test_deft_cuts_buckets_that_would_fit_into_no_forward_pass_and_leaves_those_that_only_latency_makes_long():
    cuts = planned("deft:preserver=off", (0,), profile=profile(), facts=facts()).cuts
    assert max(facts().times(profile(), cuts).crossing) < 0.1
    slow = facts(latency=1.0)
    assert planned("deft:preserver=off", (0,), profile=profile(), facts=slow).cuts == (0,)


def test_deft_delays_nothing_where_the_loss_bears_no_merging():
    unknown = facts(seconds_per_element=3e-7, is_sgd=False)
    assert planned("deft", (0,), profile=profile(), facts=unknown) == planned(
        "us-byte", (0,), profile=profile(), facts=unknown
    )
    assert planned("deft:preserver=off", (0,), profile=profile(), facts=unknown).timetable.iterations_per_update > 1


def test_a_priority_schedule_has_the_partition_that_makes_its_steps_shortest():
    tuned, whole = (
        planned(spec, (0,), profile=profile(), facts=facts()) for spec in ("priority", "priority:partition=9000000")
    )
    assert len(tuned.cuts) > 1
    assert whole.cuts == (0,)
    seconds = [facts().times(profile(), each.cuts).step_seconds(each.timetable) for each in (tuned, whole)]
    assert seconds[0] < seconds[1]


@pytest.mark.parametrize("spec", ["priority", "us-byte"])
def test_where_nothing_may_be_cut_buffers_are_sent_whole_and_one_by_one_but_as_a_user_says(spec):
    free = replace(facts(latency=0.05), shares_interface=True)
    held, cuts = replace(free, may_cut=False), (0, 3_000_400)
    assert len(planned(spec, cuts, profile=profile(), facts=facts()).cuts) > 2
    whole = planned(spec, cuts, profile=profile(), facts=held)
    assert (whole.cuts, whole.timetable.num_links) == (cuts, 1)
    by_user = f"{spec}:partition=1000000"
    assert 750_100 in planned(by_user, cuts, profile=profile(), facts=held).cuts
    assert planned("priority:credit=2", cuts, profile=profile(), facts=held).timetable.num_links == 2


@given(st.lists(st.integers(1, 100), min_size=1, max_size=6), st.integers(1, 60))
def test_split_parts_hold_at_most_so_much_and_keep_all_cuts(sizes, most):
    cuts, total = (0, *accumulate(sizes[:-1])), sum(sizes)
    parts = split(cuts, total, most)
    assert set(cuts) <= set(parts)
    assert all(0 < end - start <= most for start, end in zip(parts, (*parts[1:], total), strict=True))


def test_generations_of_a_timetable_are_counted_from_its_iterations():
    made = queues.timetable(even(8, 1.5))
    for t in range(len(made.first), 30):
        iteration = made.iteration(t)
        assert all(0 <= t - send.iteration <= 16 for send in iteration.sends)
        assert iteration == made.iteration(t + len(made.cycle)).since(-len(made.cycle))


@given(st.floats(2e-5, 0.05))
def test_a_credit_is_chosen_only_where_it_shortens_steps_by_a_twentieth(latency):
    cuts, shared = (0, 1_000_000, 1_000_400, 3_000_400), replace(facts(latency=latency), shares_interface=True)
    chosen, alone = (planned(spec, cuts, profile=profile(), facts=shared) for spec in ("priority", "priority:credit=1"))
    if chosen.timetable.num_links > 1:
        seconds = [shared.times(profile(), each.cuts).step_seconds(each.timetable) for each in (chosen, alone)]
        assert seconds[0] < 0.95 * seconds[1]
