"""DeFT's queues: what is sent when, what is merged, and that nothing is left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawn import even, step_times
from hypothesis import given
from hypothesis import strategies as st
from trimtab.papers.deft.queues import merged, timetable
from trimtab.plan.schedules.step_times import StepTimes

links = st.sampled_from([(1.0,), (1.0, 1.65)])


class Followed:
    """Buckets that a timetable is followed with, as the engine does."""

    def __init__(self, made, num_buckets):
        self.waiting = [[] for _ in range(num_buckets)]
        """By bucket: sets of generations, oldest first."""
        self.arrived = [[] for _ in range(num_buckets)]
        self.updates = []
        """The generations that each update took, and the iteration that it came in."""
        for t in range(len(made.first) + 3 * len(made.cycle)):
            self.follow(made.iteration(t), t)

    def follow(self, iteration, t):
        sent = [send.bucket for send in iteration.sends]
        assert len(sent) == len(set(sent)), "at most one send a bucket"
        present = {send.bucket for send in iteration.sends if send.iteration == t}
        for send in iteration.sends:
            mine = self.waiting[send.bucket]
            taken = [each for each in mine if max(each) <= send.iteration]
            assert taken or send.bucket in present, "what is sent was there"
            self.waiting[send.bucket] = [each for each in mine if each not in taken]
            self.arrived[send.bucket].append(frozenset().union(*taken, {t} if send.bucket in present else ()))
        for bucket, waiting in enumerate(self.waiting):
            if bucket not in present:
                if iteration.joins and waiting:
                    waiting[-1] = waiting[-1] | {t}
                else:
                    waiting.append(frozenset({t}))
        if iteration.update is not None:
            taken = [[each for each in bucket if max(each) <= iteration.update] for bucket in self.arrived]
            assert len({tuple(each) for each in taken}) == 1, "every bucket's set is of the same generations"
            assert len(taken[0]) == 1, "it is one whole set"
            self.arrived = [[each for each in bucket if max(each) > iteration.update] for bucket in self.arrived]
            self.updates.append((taken[0][0], t))


@given(step_times(), links)
def test_each_generation_is_sent_once_and_taken_with_its_whole_set_in_bounded_time(times, link_slowness):
    made, n = timetable(replace(times, link_slowness=link_slowness)), len(times.wire)
    followed = Followed(made, n)
    taken = sorted(generation for generations, _ in followed.updates for generation in generations)
    assert taken == list(range(len(taken))), "none is lost, and none comes twice"
    assert all(t - min(generations) <= 2 * n for generations, t in followed.updates)
    assert len(made.cycle) - 2 * n <= max(taken) < len(made.first) + 3 * len(made.cycle)


@given(step_times(), links)
def test_the_sizes_of_its_batches_are_those_of_its_updates(times, link_slowness):
    made = timetable(replace(times, link_slowness=link_slowness))
    batches = merged(made)
    last = [len(generations) for generations, _ in Followed(made, len(times.wire)).updates][-len(batches) :]
    assert sorted(batches) == sorted(last)
    assert sum(batches) == len(made.cycle)
    assert made.averages


def case(iteration, t, times):
    """Which of the paper's cases a backward pass is, by what the forward pass left of the current queue."""
    old = sum(times.wire[send.bucket] for send in iteration.sends if send.iteration < t)
    if iteration.update is None and old:
        return 2
    return 3 if old > sum(times.forward) else 4


def test_the_queues_go_as_in_the_papers_figure_4():
    """Case 4 with nothing before it; 3; 2, in which gradients wait; 4, in which they are merged with the next."""
    times = StepTimes((1 / 24,) * 8, (1 / 12,) * 8, (0.0,) * 8, (0.144,) * 8)
    made = timetable(times)
    assert [case(made.iteration(t), t, times) for t in range(5)] == [4, 3, 3, 2, 4]
    updates = [(sorted(generations), t) for generations, t in Followed(made, 8).updates]
    assert updates[:4] == [([0], 1), ([1], 2), ([2], 4), ([3, 4], 5)]


@pytest.mark.parametrize(("rate", "most"), [(0.6, 1.0), (1.0, 1.25), (1.5, 1.8), (2.0, 2.3), (3.0, 3.4)])
def test_updates_become_as_rare_as_the_coverage_rate_asks_and_steps_hide_their_exchanges(rate, most):
    times = even(20, rate)
    made = timetable(times)
    assert max(1.0, rate) - 1e-9 <= made.iterations_per_update <= most
    assert times.step_seconds(made) <= 1.05


def test_a_second_link_brings_more_updates():
    one, two = (replace(even(16, 2.0), link_slowness=links) for links in ((1.0,), (1.0, 1.65)))
    assert timetable(two).iterations_per_update < 0.85 * timetable(one).iterations_per_update
    assert two.step_seconds(timetable(two)) <= 1.05


def test_larger_knapsacks_bring_more_updates_and_longer_steps():
    times = even(16, 2.0)
    usual, larger = timetable(times), timetable(times, scale=1.1**8)
    assert larger.iterations_per_update < usual.iterations_per_update
    assert times.step_seconds(larger) > times.step_seconds(usual)


def test_a_bucket_that_fits_into_no_knapsack_is_sent_all_the_same():
    made = timetable(StepTimes((0.1,), (0.2,), (0.0,), (5.0,)))
    assert [len(made.iteration(t).sends) for t in range(3)] == [0, 1, 1]
    assert made.iterations_per_update == 1


def test_queues_that_take_long_to_repeat_themselves_are_emptied_now_and_then_and_not_each_time():
    for jitter in range(8):
        wire = [0.1 + 0.001 * jitter * bucket for bucket in range(18)]
        exchange = tuple(2 * each / sum(wire) for each in wire)
        made = timetable(StepTimes((1 / 54,) * 18, (1 / 27,) * 18, (0.0,) * 18, exchange))
        assert len(made.first) + len(made.cycle) <= 80
        assert made.iterations_per_update > 1.5
