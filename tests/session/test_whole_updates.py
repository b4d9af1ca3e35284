"""An update is whole under a schedule that delays: all elements are of the same iterations, whatever comes between.

Every gradient is 1 everywhere, so that an element of an update tells how many it is of.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from kit.in_process import InProcess
from kit.rank_pool import RankPool
from kit.training.engines import engine_of
from kit.training.exchanging_rank import CUTS, NUM_ELEMENTS, SHAPES, Rank
from torch import Tensor, nn
from trimtab.engine import checkpoint as carried_state
from trimtab.papers.deft import queues
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group


def of_ones(group: Group, plans: list[Plan], iterations: int, dropped: int | None) -> list[tuple[float, float]]:
    """By iteration: the least and the largest element that the optimizer gets.

    The second plan, if there is one, is adopted in the middle; the gradients of step ``dropped`` are thrown away.
    """
    rank, seen = Rank(group, plans[0]), []
    for step in range(iterations):
        if step == iterations // 2 and len(plans) > 1:
            rank.adopt(plans[1], step)
        before = rank.handed.clone()
        rank.backward([torch.ones(shape) for shape in SHAPES])
        outcome = rank.exchanger.finish()
        if step == dropped:
            rank.exchanger.drop()
        else:
            if outcome.updates:
                rank.take()
            rank.exchanger.commit()
        rank.flat_buffers.release_gradients()
        seen.append(tuple((rank.handed - before).aminmax()))
    rank.exchanger.close()
    return [(float(least), float(most)) for least, most in seen]


WIRES = (0.5, 0.9, 0.4, 0.7)
DEFT_OF_4 = queues.timetable(StepTimes((0.1,) * 4, (0.2,) * 4, (0.0,) * 4, WIRES))


@pytest.mark.parametrize("averages", [False, True])
@pytest.mark.parametrize("dropped", range(3, 10))
def test_what_a_dropped_step_was_to_send_comes_again_before_the_update(
    rank_pool: RankPool, dropped: int, averages: bool
) -> None:
    made = replace(DEFT_OF_4, averages=averages)
    plan = replace(Plan.parse("dense", FusionPlan(CUTS)), schedule="deft", timetable=made)
    seen = rank_pool.run(2, of_ones, [plan], 16, dropped)[0]
    whole = rank_pool.run(2, of_ones, [plan], 15, None)[0]
    assert [each for step, each in enumerate(seen) if step != dropped] == whole
    assert all(least == most for least, most in seen), "of a set that is not whole the optimizer gets nothing"
    assert seen[dropped] == (0.0, 0.0)
    assert sum(most > 0 for _, most in seen) > 3


OTHER_CUTS = (0, 250, 500)  # across those of the first plan
OTHER_DEFT = queues.timetable(StepTimes((0.1,) * 3, (0.2,) * 3, (0.0,) * 3, (0.5, 0.9, 0.8)))
BY_THE_MEAN = replace(Plan.parse("dense", FusionPlan(CUTS)), schedule="deft", timetable=DEFT_OF_4)
PLANNED_ANEW = replace(Plan.parse("dense", FusionPlan(OTHER_CUTS)), schedule="deft", timetable=OTHER_DEFT).with_version(
    1
)


@pytest.mark.parametrize("adopted_at", range(3, 10))
def test_updates_by_the_mean_stay_means_where_they_are_planned_anew(rank_pool: RankPool, adopted_at: int) -> None:
    seen = rank_pool.run(2, of_ones, [BY_THE_MEAN, PLANNED_ANEW], 2 * adopted_at, None)[0]
    assert {round(each, 6) for pair in seen for each in pair} == {0.0, 1.0}
    assert all(least == pytest.approx(most) for least, most in seen)


BY_THE_SUM = replace(PLANNED_ANEW, timetable=replace(OTHER_DEFT, averages=False))
WAIT_FREE = Plan.parse("dense", FusionPlan(OTHER_CUTS)).with_version(1)


@pytest.mark.parametrize("follows", [WAIT_FREE, BY_THE_SUM], ids=lambda plan: plan.schedule)
@pytest.mark.parametrize("adopted_at", range(5, 12))
def test_where_updates_by_the_mean_are_left_one_mean_of_what_is_held_is_taken(
    rank_pool: RankPool, adopted_at: int, follows: Plan
) -> None:
    seen = rank_pool.run(2, of_ones, [BY_THE_MEAN, follows], 2 * adopted_at, None)[0]
    assert all(least == pytest.approx(most) for least, most in seen)
    taken = max((DEFT_OF_4.iteration(t).update or -1 for t in range(adopted_at)), default=-1)
    is_held, timetable = taken < adopted_at - 1, follows.timetable
    newest = [t if timetable is None else timetable.iteration(t).update for t in range(adopted_at)]
    number = max(update for update in newest if update is not None) + 1
    assert sum(most for _, most in seen[adopted_at:]) == pytest.approx(number + is_held)


@dataclass
class Trained:
    """What some steps by gradients of 1 left behind."""

    moved: Tensor
    """float32 [n]: how far the weights have moved, at a learning rate of 1."""
    carried: carried_state.State
    residual_of_rounds: Tensor
    """What is held back where a plan of local steps follows."""


def trained_by_ones(group: Group, num_before: int | None, states: dict[int, carried_state.State]) -> Trained:
    """Seven steps under updates by the mean, from where ``num_before`` ranks left ``states``, if any did."""
    model = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in SHAPES)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    session = Session(model, optimizer, group=group, plan=BY_THE_MEAN, recorder=Recorder(None))
    engine = engine_of(session)
    if num_before is not None:
        carried_state.take_over(engine, states, num_before)
    for _ in range(7):
        sum(parameter.sum() for parameter in model).backward()
        engine.step()
    engine.settle()
    moved = torch.cat([-parameter.detach().reshape(-1) for parameter in model])
    kept = copy.deepcopy(carried_state.carried(engine))
    engine.plans.adopt(Plan.parse("dense/source=update:steps=2").with_version(1), engine.step_tag.step)
    residual = engine.flat_buffers.residual.clone()
    session.close()
    return Trained(moved, kept, residual)


@pytest.mark.parametrize("size", [2, 4])
def test_so_they_do_where_rounds_of_local_steps_follow_or_another_number_of_ranks_goes_on(size: int) -> None:
    with ThreadPoolExecutor(4) as ranks:
        before = list(ranks.map(trained_by_ones, in_threads(3), [None] * 3, [{}] * 3))
        states = {rank: each.carried for rank, each in enumerate(before)}
        after = list(ranks.map(trained_by_ones, in_threads(size), [3] * size, [states] * size))
    buckets = before[0].carried["exchanger"]["buckets"]
    assert sum(len(bucket[name]) for bucket in buckets for name in bucket) > len(CUTS), "two sets of some bucket"
    for each in before:
        torch.testing.assert_close(each.residual_of_rounds, torch.ones(NUM_ELEMENTS), msg="one mean, and no sum")
    for each in after:
        assert torch.equal(each.moved, after[0].moved)
        torch.testing.assert_close(each.moved, each.moved.round().clamp_min(1.0))


def in_threads(size: int) -> list[Group]:
    """Ranks that are threads of this process."""
    queues_of: dict[tuple[int, int], Any] = {(a, b): SimpleQueue() for a in range(size) for b in range(size)}
    return [Group(InProcess(rank, size, queues_of)) for rank in range(size)]
