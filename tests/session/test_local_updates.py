"""Source update: ranks step by themselves, and what crosses the network is what that did to the weights."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.held_back import residual_of
from kit.training.local_steps import plan_of, step_by_hand, with_trials
from kit.training.regression import SIZE, backward, model_of, optimizer_of
from kit.training.scripted_control import Heard
from kit.training.sessions import attach
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.run_files.steps import RoundEnd

INF = float("inf")


def train(rank: int, size: int, text: str, steps: int, optimizer: str, num_steps: int) -> list[Tensor]:
    """The weights after each step."""
    model = model_of()
    stepping = optimizer_of(model, optimizer)
    plan = plan_of(text, steps) if steps else Plan.parse(text)
    session = attach(model, stepping, plan)
    seen = []
    for number in range(num_steps):
        backward(model, number, rank)
        session.step()
        seen.append(weights_of(model))
    session.close()
    return seen


def by_hand(steps: int, optimizer: str, num_steps: int) -> Tensor:
    """All ranks in one process: each steps by itself, and after every round all take the mean of their weights."""
    models = [model_of() for _ in range(SIZE)]
    optimizers = [optimizer_of(model, optimizer) for model in models]
    for number in range(num_steps):
        for rank, (model, stepping) in enumerate(zip(models, optimizers, strict=True)):
            step_by_hand(model, stepping, number, rank)
        if number % steps == steps - 1:
            mean = torch.stack([weights_of(model) for model in models]).mean(0)
            for model in models:
                nn.utils.vector_to_parameters(mean.clone(), model.parameters())
    return weights_of(models[0])


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("steps", [1, 4])
def test_sending_everything_averages_the_weights_of_each_round(rank_pool: RankPool, steps: int, optimizer: str) -> None:
    for seen in rank_pool.run_in_process_group(SIZE, train, "dense", steps, optimizer, 8):
        torch.testing.assert_close(seen[-1], by_hand(steps, optimizer, 8), rtol=1e-4, atol=1e-5)


def test_with_plain_sgd_an_update_a_step_is_what_gradients_are(rank_pool: RankPool) -> None:
    updates, gradients = (rank_pool.run_in_process_group(SIZE, train, "dense", steps, "SGD", 6) for steps in (1, 0))
    torch.testing.assert_close(updates[0][-1], gradients[0][-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", ["0.1/all-gather", "0.1/artopk-star-ring", "0.1/artopk-var-tree"])
def test_ranks_part_within_a_round_and_are_alike_after_it(rank_pool: RankPool, text: str) -> None:
    first, *others = rank_pool.run_in_process_group(SIZE, train, text, 3, "AdamW", 9)
    for number in range(9):
        alike = [torch.equal(first[number], other[number]) for other in others]
        assert alike == [number % 3 == 2] * len(others)


def what_is_held_back(rank: int, size: int) -> dict[str, Tensor]:
    """Rounds of constant local updates under a plan that sends little: what was applied, and what waits."""
    model = nn.Linear(10, 5, bias=False)
    nn.init.zeros_(model.weight)
    session = attach(model, torch.optim.SGD(model.parameters(), lr=1.0), plan_of("0.05/all-gather", 2))
    random = torch.Generator().manual_seed(rank)
    total = torch.zeros(50)
    for _ in range(8):
        gradient = torch.randn(5, 10, generator=random)
        (model.weight * gradient).sum().backward()
        total += gradient.view(-1)
        session.step()
    result = {"made": total, "applied": -weights_of(model), "residual": residual_of(session)}
    session.close()
    return result


def test_what_a_round_does_not_send_is_sent_later(rank_pool: RankPool) -> None:
    results = rank_pool.run_in_process_group(SIZE, what_is_held_back)
    made, residual = (sum(result[name] for result in results) for name in ("made", "residual"))
    assert residual.norm() > 1
    torch.testing.assert_close(made, SIZE * results[0]["applied"] + residual, rtol=1e-5, atol=1e-5)


def not_finite(rank: int, size: int, where: str) -> dict[str, Any]:
    model = model_of()
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.05), plan_of("0.2/all-gather", 2))
    for number in range(2):
        backward(model, number, rank)
        session.step()
    before, residual = weights_of(model), residual_of(session)
    for number in range(2):
        backward(model, number, rank)
        if rank == 1 and number == 0 and where == "gradient":
            model[0].weight.grad[0, 0] = INF
        session.step()
        if rank == 1 and number == 0 and where == "weights":
            with torch.no_grad():
                model[0].weight[0, 0] = INF
    after = weights_of(model)
    same_residual = torch.equal(residual, residual_of(session))
    session.close()
    return {"moved": not torch.equal(before, after), "after": after, "same residual": same_residual}


def test_a_gradient_that_is_not_finite_costs_its_own_rank_a_step(rank_pool: RankPool) -> None:
    results = rank_pool.run_in_process_group(SIZE, not_finite, "gradient")
    for result in results:
        assert result["moved"]
        assert torch.isfinite(result["after"]).all()
        assert torch.equal(result["after"], results[0]["after"])


def test_an_update_that_is_not_finite_takes_every_rank_back_to_where_the_round_began(rank_pool: RankPool) -> None:
    for result in rank_pool.run_in_process_group(SIZE, not_finite, "weights"):
        assert not result["moved"]
        assert result["same residual"]


def spoiled_last_of_a_round(rank: int, size: int) -> str:
    """What a rank says of a gradient that is not finite on rank 1, in the step that ends a round."""
    model = model_of()
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.05), plan_of("0.2/all-gather", 1))
    backward(model, 0, rank)
    if rank == 1:
        model[0].weight.grad[0, 0] = INF
    with contextlib.redirect_stdout(io.StringIO()) as said:
        session.step()
    session.close()
    return said.getvalue()


def test_a_step_that_a_rank_leaves_out_is_told_of_also_where_it_ends_the_round(rank_pool: RankPool) -> None:
    said = rank_pool.run_in_process_group(SIZE, spoiled_last_of_a_round)
    assert "rank 1, step 0: gradient not finite in 0.weight; this rank leaves its own step out" in said[1]
    assert said[0] == said[2] == ""


def one_epoch(rank: int, size: int, folder: Path) -> tuple[int, Tensor]:
    model = model_of()
    recorder = Recorder(None if rank else folder)
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.05), plan_of("dense", 4), recorder)
    x = torch.randn(60 * size, 4, generator=torch.Generator().manual_seed(0))
    for (inputs,) in session.batches(DataLoader(TensorDataset(x), batch_size=10)):
        nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True)).backward()
        session.step()
    steps = session.steps
    session.close()
    return steps, weights_of(model)


def test_a_round_ends_early_where_the_epoch_does_and_its_exchange_is_recorded(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    results = rank_pool.run_in_process_group(SIZE, one_epoch, tmp_path)
    assert [steps for steps, _ in results] == [6] * SIZE, "no whole number of rounds"
    assert all(torch.equal(weights, results[0][1]) for _, weights in results)
    *steps, ended = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [step["bytes"] > 0 for step in steps] == [number == 3 for number in range(6)]
    assert (ended["event"], ended["step"], ended["bytes"]) == ("end of round", 5, steps[3]["bytes"])
    assert ended["collective_seconds"] > 0
    (read,) = map(RoundEnd.from_json, [ended])
    assert (read.num_bytes, read.num_messages) == (ended["bytes"], steps[3]["messages"])


@pytest.mark.parametrize(
    ("in_force", "candidates"),
    [
        (plan_of("0.1/all-gather", 2), [plan_of("0.2/artopk-star-ring", 4), Plan.parse("0.2/all-gather")]),
        (Plan.parse("0.1/all-gather"), [plan_of("0.1/all-gather", 2), plan_of("dense", 1)]),
    ],
    ids=["from updates", "from gradients"],
)
def test_trials_of_either_source_leave_no_trace(rank_pool: RankPool, in_force: Plan, candidates: list[Plan]) -> None:
    without, tried = (
        rank_pool.run_in_process_group(SIZE, with_trials, in_force, candidates, runs) for runs in (False, True)
    )
    assert tried[0][2] == 1
    for a, b in zip(without, tried, strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])


def heard_of_loops(rank: int, size: int, steps: int) -> list[float | None]:
    """Of four loops of three steps each, in rounds of ``steps``."""
    model, heard = model_of(), Heard()
    options = {"control_client": heard} if rank == 0 else {}
    session = attach(model, optimizer_of(model, "SGD"), plan_of("0.1/all-gather", steps), **options)
    for loop in range(4):
        for number in session.batches(range(3), sharded=True):
            backward(model, number, rank)
            session.step(100.0 * loop + 10 * number + rank)
    session.close()
    return heard.losses


def test_the_controller_hears_of_loops_that_have_one_whole_round_and_is_asked_where_they_have_none(
    rank_pool: RankPool,
) -> None:
    """Once it heard nothing of either, and rounds as long as that were never left, whatever became of the network."""
    assert rank_pool.run_in_process_group(2, heard_of_loops, 2)[0] == [5.5, 105.5, 205.5, 305.5]
    assert rank_pool.run_in_process_group(2, heard_of_loops, 4)[0] == [None] * 4


def loops_heard(rank: int, size: int) -> list[float]:
    """Of two steps each of a loop of three, of one whose length nobody knows, and of none."""
    model, heard = model_of(), Heard()
    options = {"control_client": heard} if rank == 0 else {}
    session = attach(model, optimizer_of(model, "SGD"), Plan.parse("dense"), **options)
    for loader in (range(3), iter(range(3))):
        for number in session.batches(loader, sharded=True):
            backward(model, number, rank)
            session.step()
            if number == 1:
                break
    for number in range(3):
        backward(model, number, rank)
        session.step()
    session.close()
    return heard.loops


def test_the_controller_hears_how_long_the_loop_is_that_ends_rounds(rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(2, loops_heard)[0] == [3, 3, INF, INF, 0, 0]


def losses_heard(rank: int, size: int, steps: int, tells: bool) -> list[float | None]:
    model, heard = model_of(), Heard()
    plan = plan_of("0.1/all-gather", steps) if steps else Plan.parse("0.1/all-gather")
    options = {"control_client": heard} if rank == 0 else {}
    session = attach(model, optimizer_of(model, "SGD"), plan, **options)
    for number in range(5 * max(1, steps)):
        backward(model, number, rank)
        session.step(10.0 * number + rank if tells or rank else None)
    session.close()
    return heard.losses


def test_the_controller_hears_of_the_mean_loss_over_ranks_and_over_a_round(rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(3, losses_heard, 0, True)[0] == [1.0, 11.0, 21.0, 31.0]
    assert rank_pool.run_in_process_group(3, losses_heard, 2, True)[0] == [6.0, 26.0, 46.0, 66.0]
    assert rank_pool.run_in_process_group(3, losses_heard, 0, False)[0] == [1.5, 11.5, 21.5, 31.5], (
        "of those that tell one"
    )


def loading(rank: int, size: int, text: str) -> list[Tensor]:
    """The weights, less those loaded before, at the end of rounds whose steps move nothing."""
    model = model_of()
    session = attach(model, torch.optim.SGD(model.parameters(), lr=0.0), plan_of(text, 2))
    off = []
    for number in range(8):
        if number % 4 == 0:
            loaded = {name: value + number + 1.0 for name, value in model.state_dict().items()}
            model.load_state_dict(loaded)
        backward(model, number, rank)
        session.step()
        if number % 2:
            off.append(weights_of(model) - torch.cat([value.flatten() for value in loaded.values()]))
    session.close()
    return off


@pytest.mark.pattern("weights loaded after `attach`, or between rounds of local steps", works="works, on all ranks")
def test_weights_that_are_loaded_between_rounds_are_where_the_next_one_begins(rank_pool: RankPool) -> None:
    for off in rank_pool.run_in_process_group(SIZE, loading, "0.01/all-gather"):
        assert not torch.cat(off).any()
