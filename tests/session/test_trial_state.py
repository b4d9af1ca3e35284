"""What a step changes beside the model is as it was once a trial has ended."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training.random_training import make_session, network
from kit.training.scripted_control import Script
from kit.training.trial_scripts import STEPS, TRIALS, loader, step, weights_of
from torch import Tensor, nn
from trimtab.checkpoint.snapshot import OptimizerState
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.session import Session
from trimtab.transport.group import Group


class Average:
    """Averaged weights, with the pair of state methods and nothing else."""

    def __init__(self, model: nn.Module) -> None:
        self.average, self.updates = weights_of(model), 0

    def update(self, model: nn.Module) -> None:
        self.average, self.updates = 0.9 * self.average + 0.1 * weights_of(model), self.updates + 1

    def state_dict(self) -> dict[str, Any]:
        return {"average": self.average, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.average, self.updates = state["average"], state["updates"]


def with_also(rank: int, size: int, trials: bool) -> tuple[Tensor, Tensor, int, float]:
    """Averaged weights, a second optimizer and its scheduler, which the script steps itself."""
    model = network()
    average = Average(model)
    second = torch.optim.SGD([model[0].weight], lr=0.1, momentum=0.5)
    second_scheduler = torch.optim.lr_scheduler.StepLR(second, step_size=3)
    script = Script({4: TRIALS} if trials else {}) if rank == 0 else None
    extra_state = [average, second, second_scheduler]
    session, _, _ = make_session(Plan.parse("0.1/all-gather"), model, control_client=script, extra_state=extra_state)
    torch.manual_seed(rank)
    for batch in session.batches(loader()):
        nn.functional.cross_entropy(model(batch["x"]), batch["labels"]).backward()
        second.step()
        session.step()
        second_scheduler.step()
        average.update(model)
        if session.steps == STEPS:
            break
    result = weights_of(model), average.average, average.updates, second.param_groups[0]["lr"]
    session.close()
    return result


@pytest.mark.pattern("averaged weights (EMA, SWA)", works="pass them in `extra_state` where trials run")
def test_whatever_was_handed_over_is_put_back(rank_pool: RankPool) -> None:
    tried = rank_pool.run_in_process_group(2, with_also, True)
    plainly = rank_pool.run_in_process_group(2, with_also, False)
    for ours, theirs in zip(tried, plainly, strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])
        assert ours[2:] == theirs[2:] == (STEPS, pytest.approx(0.1**6))


def with_a_scheduler_of_its_own(rank: int, size: int, handed_over: bool) -> str:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    session = Session(
        model,
        optimizer,
        group=Group.connect(),
        plan=Plan.parse("0.1/all-gather"),
        recorder=Recorder(None),
        control_client=Script({2: TRIALS, 5: TRIALS}) if rank == 0 else None,
        options=SessionOptions(extra_state=[scheduler] if handed_over else []),
    )
    with contextlib.redirect_stderr(io.StringIO()) as said:
        for batch in session.batches(loader()):
            step(session, model, batch)
    session.close()
    return said.getvalue()


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_scheduler_that_trials_would_move_on_is_warned_of_once(handed_over: bool, rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, with_a_scheduler_of_its_own, handed_over)
    assert first.count("a learning rate scheduler wraps the optimizer") == (0 if handed_over else 1)
    assert second == ""


def test_an_optimizer_s_state_comes_back_in_its_own_types() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weight = model.weight
    optimizer.state[weight] = {
        "count": torch.tensor([1, 2**40]),
        "moment": torch.ones(2, 3, dtype=torch.bfloat16),
        "history": [torch.zeros(2)],
        "step": 3,
    }
    moment = optimizer.state[weight]["moment"]
    kept = OptimizerState(optimizer)
    moment.mul_(5)
    optimizer.state[weight]["count"] = torch.tensor([9.0])
    optimizer.state[weight]["history"].append(torch.ones(1))
    optimizer.state[weight]["step"] += 1
    optimizer.state[model.bias]["step"] = 1
    optimizer.param_groups[0]["lr"] = 7.0
    for _ in range(2):
        kept.restore()
        held = optimizer.state[weight]
        assert held["moment"] is moment
        assert (moment.dtype, moment.float().unique().tolist()) == (torch.bfloat16, [1.0])
        assert (held["count"].dtype, held["count"].tolist()) == (torch.int64, [1, 2**40])
        assert [each.tolist() for each in held["history"]] == [[0.0, 0.0]]
        assert held["step"] == 3
        assert model.bias not in optimizer.state
        assert optimizer.param_groups[0]["lr"] == 0.1
        held["history"].clear()


@pytest.mark.parametrize("kept_type", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("live_type", [torch.float32, torch.bfloat16, torch.int64])
def test_a_state_of_one_shape_comes_back_in_the_type_that_it_had(
    kept_type: torch.dtype, live_type: torch.dtype
) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model.weight] = {"moment": torch.full((2, 3), 3, dtype=kept_type)}
    kept = OptimizerState(optimizer)
    optimizer.state[model.weight] = {"moment": torch.full((2, 3), 5, dtype=live_type)}
    kept.restore()
    moment = optimizer.state[model.weight]["moment"]
    assert (moment.dtype, moment.unique().tolist()) == (kept_type, [3])
