"""An update is whole under a schedule that delays: all of its elements are of the same iterations, come what may.

Every gradient is 1 everywhere, so that an element of an update tells how many it is of.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from rank_pool import RankPool
from test_schedules import CUTS, SHAPES, Rank
from trimtab.collectives.group import Group
from trimtab.plan import FusionPlan, Plan
from trimtab.schedule import queues
from trimtab.schedule.step_times import StepTimes


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
        rank.arena.release_gradients()
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
