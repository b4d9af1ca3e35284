"""An update that takes gradients of several iterations, where the timetable says to average them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.exchanging_rank import NUM_ELEMENTS, SHAPES, Rank, timetable_drawn
from torch import Tensor
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.transport.group import Group


def handed_of_ones(group: Group, seed: int, averages: bool) -> list[Tensor]:
    """What each iteration's optimizer is given where every gradient is 1, under buckets that wait and merge."""
    draw = random.Random(seed)  # the same on every rank
    cuts = (0, *sorted(draw.sample(range(1, NUM_ELEMENTS), 4)))
    timetable = timetable_drawn(draw, "deft", len(cuts))
    assert timetable is not None
    timetable = replace(timetable, averages=averages)
    plan = Plan(1.0, "dense-ring", fusion=FusionPlan(cuts), schedule="deft", timetable=timetable)
    rank = Rank(group, plan)
    handed = []
    for _ in range(30):
        before = rank.handed.clone()
        assert rank.iterate([torch.ones(shape) for shape in SHAPES])
        handed.append(rank.handed - before)
    total = rank.handed + rank.held("waiting") + rank.held("arrived")
    if not averages:
        torch.testing.assert_close(total, torch.full_like(total, 30.0))
    rank.exchanger.close()
    return handed


@pytest.mark.parametrize("seed", [0, 3, 4, 8])  # of these the timetable merges gradients
def test_a_timetable_that_averages_hands_out_the_mean_over_iterations_where_another_hands_out_the_sum(
    rank_pool: RankPool, seed: int
) -> None:
    means, sums = (rank_pool.run(3, handed_of_ones, seed, averages)[0] for averages in (True, False))
    most = max(float(each.max()) for each in sums)
    assert most >= 2, "gradients of several iterations were merged"
    for mean, total in zip(means, sums, strict=True):
        torch.testing.assert_close(mean, (total > 0).double())
