"""A long round of local steps ends by the exchange of a plan that was decided within it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.held_back import residual_of
from kit.training.local_steps import plan_of
from kit.training.regression import SIZE
from kit.training.scripted_control import Script
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import nn
from trimtab.control.messages import AdoptPlan, Message
from trimtab.control.types import StepReport
from trimtab.plan.plan import Plan


class Decides(Script):
    """A controller that has a new plan after so many steps."""

    def __init__(self, plan: Plan, after: int) -> None:
        super().__init__({0: AdoptPlan(plan)})
        self.after, self.num_steps, self.told = after, 0, []

    def poll(self) -> Message | None:
        return self.messages.get(0) if self.num_steps >= self.after else None

    def sent(self) -> None:
        if self.messages and self.num_steps >= self.after:
            self.messages.clear()
            self.told.append(self.num_steps)

    def step(self, before: StepReport | None, steps_left: int) -> None:
        self.num_steps += 1
        assert before is None or before.step_seconds > 0

    def in_round(self, steps_left: int) -> None:
        self.num_steps += 1


def decided_in_a_round(rank: int, size: int, plan: Plan, after: int, loop: int) -> dict[str, Any]:
    """Sixteen steps in loops of so many, in rounds of eight at first, whose whole updates cross."""
    model = nn.Linear(10, 5, bias=False)
    nn.init.zeros_(model.weight)
    decides = Decides(plan, after) if rank == 0 else None
    session = attach(model, torch.optim.SGD(model.parameters(), lr=1.0), plan_of("dense", 8), control_client=decides)
    random = torch.Generator().manual_seed(rank)
    made, seen, held_back = torch.zeros(50), [], []
    for _ in range(16 // loop):
        for _ in session.batches(range(loop), sharded=True):
            gradient = torch.randn(5, 10, generator=random)
            (model.weight * gradient).sum().backward()
            made += gradient.view(-1)
            session.step()
            seen.append(weights_of(model))
            held_back.append(float(residual_of(session).norm()))
    result = {
        "weights": seen,
        "held back": held_back,
        "made": made,
        "residual": residual_of(session),
        "plan": session.plan,
        "told": decides.told if decides else None,
    }
    session.close()
    return result


SPARSE = plan_of("0.05/all-gather", 4).with_version(1)


def alike_after(results: list[dict[str, Any]]) -> list[int]:
    """The numbers of steps after which ranks had the same weights."""
    first, *others = (result["weights"] for result in results)
    return [n + 1 for n in range(len(first)) if all(torch.equal(first[n], other[n]) for other in others)]


@pytest.mark.parametrize(
    ("after", "told", "first_sparse"),
    [(2, 3, 8), (3, 3, 8), (4, 7, 12)],
    ids=["early", "in time", "too late"],
)
def test_a_round_that_hears_of_a_new_plan_in_time_ends_by_its_exchange(
    rank_pool: RankPool, after: int, told: int, first_sparse: int
) -> None:
    """And nothing is lost by it: what the new plan does not send of the old one's round is sent later."""
    results = rank_pool.run_in_process_group(SIZE, decided_in_a_round, SPARSE, after, 16)
    assert results[0]["told"] == [told]
    assert alike_after(results) == [8, 12, 16]
    for result in results:
        assert [norm > 0 for norm in result["held back"]] == [number >= first_sparse for number in range(1, 17)]
        assert result["plan"] == SPARSE
    made, residual = (sum(result[name] for result in results) for name in ("made", "residual"))
    torch.testing.assert_close(made, residual - SIZE * results[0]["weights"][-1], rtol=1e-5, atol=1e-4)


def test_a_loop_that_ends_after_a_round_has_heard_of_a_new_plan_ends_the_round_by_it(rank_pool: RankPool) -> None:
    results = rank_pool.run_in_process_group(SIZE, decided_in_a_round, SPARSE, 2, 6)
    assert results[0]["told"] == [3]
    assert alike_after(results) == [10], "rounds of four from the second loop on"
    assert all(result["plan"] == SPARSE for result in results)
    assert all(norm == 0 for result in results for norm in result["held back"][:6])
    assert all(norm > 0 for result in results for norm in result["held back"][6:])


@pytest.mark.parametrize(
    "plan",
    [Plan.parse("0.05/all-gather"), replace(SPARSE, schedule="overlap")],
    ids=["of gradients", "of rounds that cross under the next"],
)
def test_a_plan_that_cannot_end_a_round_waits_for_its_end(rank_pool: RankPool, plan: Plan) -> None:
    results = rank_pool.run_in_process_group(SIZE, decided_in_a_round, plan.with_version(1), 2, 16)
    assert results[0]["told"] == [7], "told by the vote of the eighth step"
    assert results[0]["held back"][7] == 0
    assert results[0]["plan"] == plan.with_version(1)
