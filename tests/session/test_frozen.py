"""Parameters that learn at times only, and ranks that part: found out, or followed as one process would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training import sessions
from kit.training.engines import engine_of
from torch import Tensor, nn
from trimtab.engine.exchange.consensus import STEPS_BETWEEN_FINGERPRINTS
from trimtab.engine.exchange.weight_fingerprint import ROUNDING, RanksDivergedError, WeightFingerprint, compare, slots
from trimtab.papers.deft import queues
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

PLANS = ("0.2/all-gather", "0.2/artopk-star-ring", "dense")
FROZEN = "layers.1.weight"


class Branches(nn.Module):
    """Three layers, any of which a step may leave out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(3))

    def forward(self, x: Tensor, used: tuple[int, ...]) -> Tensor:
        for index in used:
            x = self.layers[index](x)
        return x

    def weight(self, index: int) -> Tensor:
        return self.layers[index].weight.detach().clone()


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5)


def attach(model: nn.Module, plan: str, optimizer: torch.optim.Optimizer | None = None, **options: Any) -> Session:
    optimizer = optimizer or adam(model)
    parsed = Plan.parse(plan, FusionPlan((0, 64)))
    return sessions.attach(model, optimizer, parsed, **options)


def step(session: Session, model: Branches, rank: int, used: tuple[int, ...], number: int = 0) -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * number + rank))
    model(x, used).square().sum().backward()
    session.step()


def never_used(rank: int, size: int, plan: str) -> tuple[bool, bool]:
    model = Branches()
    before, optimizer = model.weight(1), adam(model)
    session = attach(model, plan, optimizer)
    for number in range(3):
        step(session, model, rank, (0, 2), number)
    session.close()
    return torch.equal(before, model.weight(1)), model.layers[1].weight in optimizer.state


@pytest.mark.parametrize("plan", PLANS)
def test_weight_decay_leaves_alone_what_no_rank_uses(plan: str, rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(2, never_used, plan) == [(True, False)] * 2


def used_by_one(rank: int, size: int, plan: str) -> tuple[Tensor, Tensor, Tensor]:
    """Rank 1 alone uses the middle layer, with inputs of zeros: its gradient is there, and zero."""
    model = Branches()
    before = model.weight(1)
    session = attach(model, plan)
    loss = model(torch.ones(4, 8), (0, 2)).square().sum()
    if rank == 1:
        loss = loss + model.layers[1](torch.zeros(4, 8)).sum()
    loss.backward()
    session.step()
    once = model.weight(1)
    step(session, model, rank, (0, 2))
    session.close()
    return before, once, model.weight(1)


@pytest.mark.pattern(
    "parameters that a step does not use: that one rank uses, another not",
    works="the mean counts zeros",
)
@pytest.mark.parametrize("plan", ["0.2/all-gather", "dense"])
def test_what_one_rank_uses_decays_on_all_and_as_long_as_it_is_used(plan: str, rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, used_by_one, plan)
    for before, once, then in (first, second):
        torch.testing.assert_close(once, before * (1 - 0.01 * 0.5))
        assert torch.equal(then, once)
    assert torch.equal(first[2], second[2])


def freezing(rank: int, size: int, plan: str) -> dict[str, Any]:
    """Train, freeze the middle layer, train, and let it learn again."""
    model = Branches()
    session = attach(model, plan)
    for number in range(3):
        step(session, model, rank, (0, 1, 2), number)
    held = session.debug_state().residual[FROZEN]
    frozen_at = model.weight(1)
    model.layers[1].requires_grad_(False)
    for number in range(3, 6):
        step(session, model, rank, (0, 1, 2), number)
    stood_still = torch.equal(frozen_at, model.weight(1))
    kept = torch.equal(session.debug_state().set_aside[FROZEN], held)
    model.layers[1].requires_grad_(True)
    step(session, model, rank, (0, 1, 2), 6)
    session.close()
    return {
        "held": float(held.abs().sum()),
        "stood still": stood_still,
        "kept": kept,
        "moves": not torch.equal(frozen_at, model.weight(1)),
        "set aside": len(session.debug_state().set_aside),
        "weights": torch.cat([model.weight(index) for index in range(3)]),
    }


@pytest.mark.pattern(
    "freezing and thawing while training",
    works="works on all ranks at the same step, for what required a gradient at `attach`",
)
@pytest.mark.parametrize("plan", PLANS)
def test_a_frozen_parameter_stands_still_and_keeps_its_residual_until_it_learns_again(
    plan: str, rank_pool: RankPool
) -> None:
    first, second = rank_pool.run_in_process_group(2, freezing, plan)
    for seen in (first, second):
        assert (seen["held"] > 0) == (plan != "dense")
        assert (seen["stood still"], seen["kept"], seen["moves"], seen["set aside"]) == (True, True, True, 0)
    assert torch.equal(first["weights"], second["weights"])


DEFT = queues.timetable(StepTimes((0.1,) * 4, (0.2,) * 4, (0.0,) * 4, (0.5, 0.9, 0.4, 0.7)))
LATE_CUTS = (0, 40, 80, 128)  # two of them lie inside of layers


def frozen_while_gradients_wait(
    rank: int, size: int, text: str, optimizer: str, frozen_at: int
) -> tuple[bool, list[Tensor]]:
    """Whether the middle layer stood still for six steps; how far each layer has moved when all has been sent."""
    model = Branches()
    before = [model.weight(index) for index in range(3)]
    own = {"SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW}[optimizer](model.parameters(), lr=1.0)
    plan = Plan.parse(f"{text}/schedule=deft", FusionPlan(LATE_CUTS))
    plan = replace(plan, timetable=replace(DEFT, averages=False))
    session = Session(model, own, group=Group.connect(), plan=plan, recorder=Recorder(None))
    engine, stood_still = engine_of(session), True
    for number in range(frozen_at + 12):
        if number == frozen_at:
            model.layers[1].requires_grad_(False)
            seen = model.weight(1)
        if number == frozen_at + 6:
            stood_still = torch.equal(seen, model.weight(1))
            model.layers[1].requires_grad_(True)
        if number == frozen_at + 10:
            engine.plans.adopt(Plan.parse("dense", FusionPlan(LATE_CUTS)).with_version(1), engine.step_tag.step)
        model(torch.ones(1, 8), ())  # a forward pass, in which what waits is sent
        sum(layer.weight.sum() for layer in model.layers if layer.weight.requires_grad).backward()
        session.step()
    session.close()
    return stood_still, [before[index] - model.weight(index) for index in range(3)]


@pytest.mark.parametrize(("text", "optimizer"), [("dense", "SGD"), ("0.3/all-gather", "SGD"), ("dense", "AdamW")])
def test_what_a_schedule_brings_of_a_frozen_parameter_waits_until_it_learns_again(
    text: str, optimizer: str, rank_pool: RankPool
) -> None:
    for frozen_at in range(5, 10):
        first, second = rank_pool.run_in_process_group(2, frozen_while_gradients_wait, text, optimizer, frozen_at)
        assert first[0]
        assert second[0]
        assert all(torch.equal(a, b) for a, b in zip(first[1], second[1], strict=True))
        if optimizer == "SGD":
            num_steps = frozen_at + 12
            for moved, expected in zip(first[1], (num_steps, num_steps - 6, num_steps), strict=True):
                torch.testing.assert_close(moved, torch.full_like(moved, expected))


def unfreezing(rank: int, size: int) -> str:
    model = Branches()
    model.layers[1].requires_grad_(False)
    session = attach(model, "dense")
    step(session, model, rank, (0, 1, 2))
    model.layers[1].requires_grad_(True)
    try:
        step(session, model, rank, (0, 1, 2))
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.pattern(
    "parameters that learn only after `attach`", refused="`did not exist or required no gradient at attach`"
)
def test_a_parameter_that_was_frozen_at_attach_is_refused_by_name_when_it_learns(rank_pool: RankPool) -> None:
    for message in rank_pool.run_in_process_group(2, unfreezing):
        assert message.startswith("model parameter layers.1.weight: did not exist or required no gradient")


def frozen_on_one(rank: int, size: int) -> str:
    model = Branches()
    session = attach(model, "dense")
    model.layers[1].requires_grad_(rank == 0)
    try:
        step(session, model, rank, (0, 1, 2))
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.pattern("freezing on one rank alone", refused="the parameter is named on all ranks")
def test_a_parameter_frozen_on_one_rank_alone_is_refused_by_name_on_all(rank_pool: RankPool) -> None:
    for message in rank_pool.run_in_process_group(3, frozen_on_one):
        assert message.startswith("model parameter layers.1.weight: is frozen (requires_grad=False) on rank 1, 2")


# Weights that part -------------------------------------------------------------------------------------------------


def parting(rank: int, size: int, by: float) -> tuple[str, Tensor]:
    """Rank 1's weights are moved by hand; what comes of it by the second comparison."""
    model = Branches()
    session = attach(model, "0.2/all-gather")
    said = ""
    try:
        for number in range(2 * STEPS_BETWEEN_FINGERPRINTS + 1):
            if number == 10 and rank == 1:
                with torch.no_grad():
                    model.layers[0].weight *= 1 + by
            step(session, model, rank, (0, 1, 2), number)
    except RanksDivergedError as error:
        said = str(error)
    return said, torch.cat([model.weight(index) for index in range(3)])


def test_ranks_whose_weights_part_stop_with_rank_and_step(rank_pool: RankPool) -> None:
    for said, _ in rank_pool.run_in_process_group(3, parting, 0.01):
        assert said.startswith(f"rank 1 holds other weights than rank 0 at step {STEPS_BETWEEN_FINGERPRINTS}: ")


def test_weights_that_part_by_rounding_are_made_rank_0_s_again(rank_pool: RankPool) -> None:
    results = rank_pool.run_in_process_group(2, parting, 3e-7)
    assert [said for said, _ in results] == ["", ""]
    assert torch.equal(results[0][1], results[1][1])


def test_a_fingerprint_tells_weights_apart_and_not_by_where_they_differ() -> None:
    generator = torch.Generator().manual_seed(3)
    weights = [torch.randn(20_000, generator=generator), torch.randn(7, 3, generator=generator)]
    whole = WeightFingerprint.of(weights)
    assert whole.norm == pytest.approx(sum(float(w.double().square().sum()) for w in weights) ** 0.5, rel=1e-4)
    assert WeightFingerprint.of([w.clone() for w in weights]) == whole
    for tensor, index in ((0, 0), (0, 19_999), (1, 20)):
        changed = [w.clone() for w in weights]
        changed[tensor].view(-1)[index] += 1.0
        distance = abs(WeightFingerprint.of(changed).projection - whole.projection)
        assert 1e-3 < distance < 30
    swapped = weights[0].clone()
    swapped[:8192], swapped[8192:16384] = weights[0][8192:16384], weights[0][:8192]
    assert abs(WeightFingerprint.of([swapped, weights[1]]).projection - whole.projection) > 1


@pytest.mark.parametrize(
    ("moved", "verdict"), [(0.0, "same"), (1e-13, "same"), (1e-7, "rounding"), (0.9 * ROUNDING, "rounding")]
)
def test_verdicts_on_weights(moved: float, verdict: str) -> None:
    summed = sum(slots(WeightFingerprint(123.456 + 50 * moved * rank, 50.0), rank, 3) for rank in range(3))
    assert isinstance(summed, Tensor)
    if moved * 2 > ROUNDING:
        with pytest.raises(RanksDivergedError, match="rank 2"):
            compare(summed.tolist(), 7)
    else:
        assert compare(summed.tolist(), 7) == verdict


@pytest.mark.parametrize("strange", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_on_one_rank_are_told(strange: float) -> None:
    summed = sum(slots(WeightFingerprint(strange if rank == 1 else 1.0, 50.0), rank, 2) for rank in range(2))
    assert isinstance(summed, Tensor)
    with pytest.raises(RanksDivergedError, match="rank 1"):
        compare(summed.tolist(), 7)
