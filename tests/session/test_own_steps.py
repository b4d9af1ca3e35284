"""A script that keeps its own loop: ``optimizer.step()`` is the step (`test_patterns`: it trains what DDP trains)."""

from __future__ import annotations

import pytest
import torch
import trimtab
from kit.rank_pool import RankPool
from kit.training.regression import loss_of, model_of
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab_api.errors import UserError

SIZE = 2
STEPS = 6


def train(rank: int, size: int, text: str) -> tuple[Tensor, int]:
    """The weights after a loop as its author wrote it, and the steps counted."""
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    session = attach(model, optimizer, text)
    for number in range(STEPS):
        optimizer.zero_grad(set_to_none=number % 2 == 0)
        loss_of(model, number, rank).backward()
        optimizer.step()
    steps = session.steps
    session.close()
    return weights_of(model), steps


@pytest.mark.parametrize("text", ["0.1/all-gather", "0.2/artopk-star-ring", "0.2/all-gather/source=update:steps=3"])
def test_ranks_stay_equal_under_compression(rank_pool: RankPool, text: str) -> None:
    (first, steps), (second, _) = rank_pool.run_in_process_group(SIZE, train, text)
    assert steps == STEPS
    assert torch.equal(first, second)
    assert not torch.equal(first, weights_of(model_of()))


def overflowing(rank: int, size: int, text: str) -> list[tuple[float, bool, int]]:
    """Scale after each step, whether weights moved, steps counted; rank 1 overflows in the third step."""
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = GradScaler("cpu", init_scale=2.0**8, growth_interval=100)
    session = attach(model, optimizer, text, scale=LossScale(scaler))
    seen = []
    for number in range(5):
        before = weights_of(model)
        optimizer.zero_grad()
        loss = loss_of(model, number, rank)
        scaler.scale(loss * float("inf") if number == 2 and rank == 1 else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), not torch.equal(before, weights_of(model)), session.steps))
    session.close()
    assert "update" not in scaler.__dict__
    return seen


@pytest.mark.parametrize("text", ["dense", "0.1/all-gather"])
def test_a_step_that_overflows_on_one_rank_is_left_out_by_every_scaler(rank_pool: RankPool, text: str) -> None:
    for seen in rank_pool.run_in_process_group(SIZE, overflowing, text):
        assert [scale for scale, _, _ in seen] == [256.0, 256.0, 128.0, 128.0, 128.0]
        assert [moved for _, moved, _ in seen] == [True, True, False, True, True]
        assert [steps for _, _, steps in seen] == [1, 2, 3, 4, 5]


def unknown_scaler(rank: int, size: int) -> list[str]:
    said = []
    for enabled in (True, False):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = GradScaler("cpu", enabled=enabled)
        session = attach(model, optimizer, "dense")
        scaler.scale(loss_of(model, 0, rank)).backward()
        try:
            scaler.step(optimizer)
            said.append("stepped")
        except UserError as error:
            said.append(str(error))
        session.close()
    return said


@pytest.mark.pattern("a scaler that was not handed over", refused="`... hand it over: attach(..., scaler=scaler)`")
def test_a_scaler_that_was_not_handed_over_is_refused_unless_it_scales_nothing(rank_pool: RankPool) -> None:
    for refused, taken in rank_pool.run_in_process_group(SIZE, unknown_scaler):
        assert "pass it to the session, which keeps residuals free of its scale: attach(..., scaler=scaler)" in refused
        assert taken == "stepped"


def not_finite(rank: int, size: int) -> list[bool]:
    """Whether weights moved in each step; rank 1's gradient is infinite in the second."""
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)
    session = attach(model, optimizer, "0.1/all-gather")
    moved = []
    for number in range(3):
        before = weights_of(model)
        optimizer.zero_grad()
        (loss_of(model, number, rank) * (float("inf") if number == rank == 1 else 1.0)).backward()
        optimizer.step()
        moved.append(not torch.equal(before, weights_of(model)))
    session.close()
    return moved


def test_a_gradient_that_is_not_finite_moves_no_rank(rank_pool: RankPool) -> None:
    for moved in rank_pool.run_in_process_group(SIZE, not_finite):
        assert moved == [True, False, True]


def both_ways(rank: int, size: int) -> list[str]:
    said = []
    for first, then in (("session", "optimizer"), ("optimizer", "session")):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        session = attach(model, optimizer, "dense")
        steps = {"session": session.step, "optimizer": optimizer.step}
        loss_of(model, 0, rank).backward()
        steps[first]()
        try:
            steps[then]()
        except UserError as error:
            said.append(str(error))
        session.close()
    return said


@pytest.mark.pattern(
    "`optimizer.step()` and `session.step()` in one script",
    refused="`this script takes its steps by ...; use one way only`",
)
def test_a_step_that_is_taken_twice_is_refused(rank_pool: RankPool) -> None:
    for left_in, twice in rank_pool.run_in_process_group(SIZE, both_ways):
        assert left_in.startswith("optimizer.step: this script takes its steps by session.step()")
        assert twice.startswith("session.step: this script takes its steps by optimizer.step()")


def test_one_process_trains_as_it_did_and_counts_its_steps() -> None:
    ours, theirs = model_of(), model_of()
    session = trimtab.attach(ours, optimizer := torch.optim.SGD(ours.parameters(), lr=0.1))
    plain = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for number in range(3):
        for model, stepping in ((ours, optimizer), (theirs, plain)):
            stepping.zero_grad()
            loss_of(model, number, 0).backward()
            stepping.step()
    assert session.steps == 3
    assert torch.equal(weights_of(ours), weights_of(theirs))
    session.close()


def two_optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """One for matrices, one for the rest."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    others = [parameter for parameter in model.parameters() if parameter.ndim != 2]
    return [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=0.01)]


def with_two(rank: int, size: int, text: str | None, style: str) -> tuple[Tensor, int]:
    """The weights after training by two optimizers, with DDP where there is no plan."""
    model = model_of()
    optimizers = two_optimizers(model)
    scaler = GradScaler("cpu", init_scale=2.0**8, enabled=style == "scaler")
    session = None if text is None else attach(model, optimizers, text, scale=LossScale(scaler))
    module = nn.parallel.DistributedDataParallel(model) if session is None else model
    for number in range(STEPS):
        for each in optimizers:
            each.zero_grad()
        scaler.scale(loss_of(module, number, rank)).backward()
        if session is not None and style == "session.step":
            session.step()
            continue
        for each in reversed(optimizers) if style == "reversed" else optimizers:
            scaler.step(each)
        scaler.update()
    steps = STEPS if session is None else session.steps
    if session is not None:
        session.close()
    return weights_of(model), steps


@pytest.mark.pattern("several optimizers (Muon and AdamW)", works="`attach(model, [a, b])`: each steps once a step")
@pytest.mark.parametrize("style", ["in order", "reversed", "scaler", "session.step"])
def test_two_optimizers_step_as_under_ddp(rank_pool: RankPool, style: str) -> None:
    ours = rank_pool.run_in_process_group(SIZE, with_two, "dense", style)
    theirs = rank_pool.run_in_process_group(SIZE, with_two, None, style)
    for (mine, steps), (other, _) in zip(ours, theirs, strict=True):
        assert steps == STEPS
        assert torch.equal(mine, other)


def infinite_with_two(rank: int, size: int) -> tuple[bool, int]:
    """Whether weights moved in a step that is infinite on rank 1 alone, and in another."""
    model = model_of()
    optimizers = two_optimizers(model)
    session = attach(model, optimizers, "0.1/all-gather")
    before = weights_of(model)
    (loss_of(model, 0, rank) * (float("inf") if rank == 1 else 1.0)).backward()
    for each in optimizers:
        each.step()
        each.zero_grad()
    have_moved = not torch.equal(before, weights_of(model))
    steps = session.steps
    session.close()
    return have_moved, steps


def test_a_dropped_step_moves_the_parameters_of_neither(rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(SIZE, infinite_with_two) == [(False, 1), (False, 1)]


def stepping_one_of_two(rank: int, size: int, again: str) -> str:
    model = model_of()
    optimizers = two_optimizers(model)
    session = attach(model, optimizers, "dense")
    loss_of(model, 0, rank).backward()
    optimizers[1].step()
    try:
        if again == "step":
            optimizers[1].step()
        else:
            loss_of(model, 1, rank).backward()
    except UserError as error:
        return str(error)
    finally:
        session.close()
    return ""


@pytest.mark.pattern(
    "one of several optimizers left out of a step",
    refused="`did not step after the last backward pass, ...`",
)
@pytest.mark.parametrize("again", ["step", "backward"])
def test_an_optimizer_that_is_left_out_is_named(rank_pool: RankPool, again: str) -> None:
    for said in rank_pool.run_in_process_group(SIZE, stepping_one_of_two, again):
        assert said.startswith("optimizer: 'Muon': did not step after the last backward pass, but other optimizers did")


def stepping_by_hand(rank: int, size: int, cleared: bool) -> str:
    """What a loop that changes weights by itself is told at its second backward pass."""
    model = model_of()
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.1), "dense")
    try:
        for number in range(2):
            loss_of(model, number, rank).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
                    if cleared:
                        parameter.grad = None
    except UserError as error:
        return str(error)
    finally:
        session.close()
    return ""


@pytest.mark.pattern(
    "weights changed manually, without an optimizer's step",
    refused="`weights changed after backward(), but no optimizer ...`",
)
@pytest.mark.parametrize("cleared", [True, False])
def test_weights_changed_by_hand_are_refused_with_the_remedy(rank_pool: RankPool, cleared: bool) -> None:
    for said in rank_pool.run_in_process_group(SIZE, stepping_by_hand, cleared):
        assert "use attach(model) without an optimizer, and call session.step() after each change" in said


def attached_in(rank: int, size: int, dtype: torch.dtype) -> str:
    try:
        attach(model_of().to(dtype), [], "dense")
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.pattern(
    "parameters of lower precision on several ranks",
    refused="`keep parameters in float32 and use autocast ...`",
)
@pytest.mark.pattern(
    "float64 or complex parameters on several ranks",
    refused="`gradients are exchanged in float32; ...`",
)
@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [
        (torch.bfloat16, "keep parameters in float32 and use autocast"),
        (torch.float64, "gradients are exchanged in float32; call model.float() before attach"),
        (torch.complex64, "gradients are exchanged in float32; keep the real and the imaginary part as parameters"),
    ],
)
def test_parameters_of_another_type_are_refused_by_name(rank_pool: RankPool, dtype: torch.dtype, remedy: str) -> None:
    for said in rank_pool.run_in_process_group(SIZE, attached_in, dtype):
        assert said.startswith(f"model parameter 0.weight: '{dtype}': {remedy}")
