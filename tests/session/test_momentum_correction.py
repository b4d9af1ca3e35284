"""Momentum correction, local clipping and warm-up do on every rank what their equations say, dropped steps or not."""

from __future__ import annotations

import copy

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.exchanging_rank import NUM_ELEMENTS, Rank, in_arena_order, spoil
from torch import Tensor
from trimtab.control.types import ControllerSettings
from trimtab.plan.constraints import Script
from trimtab.plan.plan import WARMUP_RATIOS, FusionPlan, Plan, elements_to_send
from trimtab.session.checks import check_plan
from trimtab.transport.group import Group
from trimtab_api.errors import UserError

CUTS, OTHER_CUTS = (0, 203, 400), (0, 600)
NUM_RANKS, NUM_STEPS, DROPPED, REPLANNED, TRIED = 3, 9, 3, 5, 7


def plan_at(text: str, step: int) -> Plan:
    return Plan.parse(text, FusionPlan(CUTS if step < REPLANNED else OTHER_CUTS))


def train(group: Group, text: str) -> list[tuple[Tensor, Tensor]]:
    """What the optimizer was handed in each step that was kept, and the residual after it."""
    rank = Rank(group, plan_at(text, 0))
    found = []
    for step in range(NUM_STEPS):
        if step == REPLANNED:
            rank.adopt(plan_at(text, step), step)
        if step == TRIED:  # a trial without momentum, undone
            carried, residual = copy.deepcopy(rank.exchanger.state_dict()), rank.flat_buffers.residual.clone()
            rank.adopt(Plan.parse("0.1/all-gather"), step, trial=1)
            rank.backward([torch.ones(parameter.shape) for parameter in rank.parameters])
            rank.exchanger.finish()
            rank.exchanger.commit()
            rank.flat_buffers.release_gradients()
            rank.adopt(plan_at(text, step), step)
            rank.exchanger.load_state_dict(carried)
            rank.flat_buffers.residual.copy_(residual)
        gradients = rank.gradient()
        if step == DROPPED:
            spoil(gradients, 100, is_here=group.rank == 1)
        rank.handed.zero_()
        if rank.iterate(gradients):
            found.append((rank.handed.clone(), rank.flat_buffers.residual.double()))
    rank.exchanger.close()
    return found


def expected(text: str) -> list[list[tuple[Tensor, Tensor]]]:
    """The same, by rank, as DGC's equations say it of exact top-k."""
    draws = [torch.Generator().manual_seed(rank) for rank in range(NUM_RANKS)]
    u, v = torch.zeros(NUM_RANKS, NUM_ELEMENTS).double(), torch.zeros(NUM_RANKS, NUM_ELEMENTS).double()
    found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in draws]
    for step in range(NUM_STEPS):
        plan = plan_at(text, step)
        gradients = torch.stack([in_arena_order(Rank.gradient(Drawing(draw))) for draw in draws])
        if step == DROPPED:
            continue
        if plan.clip:
            norms = gradients.norm(dim=1, keepdim=True)
            gradients = gradients * (plan.clip / NUM_RANKS**0.5 / norms).clamp(max=1)
        u = plan.momentum * u + gradients
        v = v + u
        sent = torch.zeros_like(v, dtype=torch.bool)
        for buffer in plan.fusion.buffers(NUM_ELEMENTS):
            span, k = slice(buffer.start, buffer.stop), elements_to_send(plan.ratio_at(step), len(buffer))
            largest = v[:, span].abs().topk(k).indices
            if plan.shares_indices:
                largest = largest[step % NUM_RANKS].expand(NUM_RANKS, -1)
            sent[:, span] = sent[:, span].scatter(1, largest, value=True) | plan.is_dense
        handed = (v * sent).mean(0)
        v = v * ~sent
        if not plan.is_dense:
            u = u * ~sent
        for rank, each in enumerate(found):
            each.append((handed, v[rank].clone()))
    return found


class Drawing:
    """What `Rank.gradient` draws from."""

    def __init__(self, random: torch.Generator) -> None:
        self.random = random


@pytest.mark.parametrize(
    "text",
    [
        "0.1/all-gather/sparsifier=topk/source=gradient:momentum=0.9",
        "0.1/artopk-star-tree/sparsifier=topk/source=gradient:momentum=0.9",
        "dense-ring/source=gradient:momentum=0.9",
        "0.01/all-gather/sparsifier=topk/source=gradient:momentum=0.5:warmup=10",
        "0.1/all-gather/sparsifier=topk/schedule=after-backward/source=gradient:clip=30:momentum=0.9",
    ],
)
def test_velocities_are_sent_held_back_and_cleared_as_the_equations_say(rank_pool: RankPool, text: str) -> None:
    for found, of_equations in zip(rank_pool.run(NUM_RANKS, train, text), expected(text), strict=True):
        assert len(found) == len(of_equations) == NUM_STEPS - 1
        for ours, theirs in zip(found, of_equations, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_ratio_warms_up_in_equal_parts_and_never_below_the_plan() -> None:
    plan = Plan.parse("0.02/all-gather/source=gradient:warmup=20")
    assert [plan.ratio_at(step) for step in (0, 3, 4, 8, 11, 12, 19, 20, 1000)] == [
        0.316, 0.316, 0.1, 0.032, 0.032, 0.02, 0.02, 0.02, 0.02,
    ]  # fmt: skip
    assert list(WARMUP_RATIOS) == sorted(WARMUP_RATIOS, reverse=True)
    assert Plan.parse("0.02/all-gather").ratio_at(0) == 0.02


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.1/all-gather/source=gradient:clip=1", "clip needs the whole gradient before any of it is sent; add"),
        ("0.1/all-gather/source=gradient:momentum=1", r"momentum=1: write a number in \[0, 1\), such as 0.9"),
        ("0.1/all-gather/source=update:momentum=0.9", "takes no option momentum; it takes steps"),
    ],
)  # fmt: skip
def test_what_cannot_be_corrected_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Plan.parse(text)


@pytest.mark.parametrize(
    ("optimizer", "own"),
    [(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (torch.optim.AdamW, {}), (torch.optim.SGD, {"lr": 0.1})],
)
def test_momentum_of_momentum_is_refused_in_one_line(optimizer, own) -> None:
    made = optimizer([torch.nn.Parameter(torch.zeros(1))], **own)
    check_plan(Plan.parse("0.1/all-gather"), Script(), [made])
    plan = Plan.parse("0.1/all-gather/source=gradient:momentum=0.9")
    if own == {"lr": 0.1}:
        check_plan(plan, Script(), [made])
        return
    with pytest.raises(UserError) as refused:
        check_plan(plan, Script(), [made])
    assert str(refused.value) == (
        "source: 'gradient:momentum=0.9': corrects the momentum of an optimizer that has none of its own, and"
        f" {optimizer.__name__} has 0.9; give SGD momentum=0, or leave momentum out of the plan"
    )


def test_an_adaptive_policy_does_not_correct_momentum() -> None:
    with pytest.raises(UserError, match="an Adaptive policy falls back to dense without it"):
        ControllerSettings(sources=("gradient:momentum=0.9",))
