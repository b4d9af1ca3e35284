"""`trimtab.hook`: wrapper and loop stay DDP's, and what crosses the network is the plan's to say."""

from __future__ import annotations

import copy
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import trimtab
from kit.rank_pool import RankError, RankPool
from kit.training.held_back import residual_of
from kit.training.weights import weights_of
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from trimtab.cli.main import main
from trimtab.transport.base import CommunicationError
from trimtab_api.errors import UserError

HOOKED = Path(__file__).parent / "hooked.py"
STEPS = 6
SMALL_BUCKETS = {
    "bucket_cap_mb": 0.001
}  # of the hidden layers, several: the first step has one, and then DDP cuts anew
STYLES: dict[str, dict[str, Any]] = {
    "buckets": SMALL_BUCKETS,
    "views": {**SMALL_BUCKETS, "gradient_as_bucket_view": True},
    "static": {**SMALL_BUCKETS, "static_graph": True},
    "unused": {**SMALL_BUCKETS, "find_unused_parameters": True},
}


class Network(nn.Module):
    """Layers of unlike shapes, and one that only some steps use."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.hidden = nn.Linear(6 * 16, 24)
        self.extra = nn.Linear(24, 24)
        self.last = nn.Linear(24, 1)

    def forward(self, x: Tensor, *, extra: bool = True) -> Tensor:
        hidden = torch.tanh(self.hidden(torch.tanh(self.first(x)).flatten(1)))
        return self.last(torch.tanh(self.extra(hidden)) if extra else hidden)


def loss_of(model: nn.Module, number: int, rank: int, **options: Any) -> Tensor:
    x = torch.randn(4, 1, 4, 4, generator=torch.Generator().manual_seed(100 * number + rank))
    return nn.functional.mse_loss(model(x, **options), x.sum(dim=(1, 2, 3)).unsqueeze(1))


def uses(style: str, number: int, rank: int) -> bool:
    """Whether a step uses the extra layer: all do, or none does in some and one rank alone in others."""
    return style != "unused" or number % 3 == 0 or (number % 3 == 1 and rank == 0)


def train(rank: int, size: int, folder: Path, plan: str | None, style: str) -> tuple[Tensor, int]:
    """The weights after a script for DDP, by the hook where there is a plan; and the session's steps."""
    os.chdir(folder)
    model = Network()
    ddp = DistributedDataParallel(model, **STYLES[style])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    state = trimtab.HookState(optimizer, plan=plan, run_directory="run")
    if plan is not None:
        ddp.register_comm_hook(state, trimtab.hook)
    for number in range(STEPS):
        loss_of(ddp, number, rank, extra=uses(style, number, rank)).backward()
        optimizer.step()
        optimizer.zero_grad()
    steps = 0 if state.session is None else state.session.steps
    state.close()
    return weights_of(model), steps


@pytest.mark.parametrize("style", STYLES)
def test_dense_is_ddp_bit_for_bit_and_compressed_ranks_stay_equal(
    rank_pool: RankPool, style: str, tmp_path: Path
) -> None:
    ours = rank_pool.run_in_process_group(2, train, tmp_path, "dense", style)
    theirs = rank_pool.run_in_process_group(2, train, tmp_path, None, style)
    for (mine, steps), (other, _) in zip(ours, theirs, strict=True):
        assert steps == STEPS
        assert torch.equal(mine, other)
    (one, steps), (another, _) = rank_pool.run_in_process_group(2, train, tmp_path, "0.1/all-gather", style)
    assert steps == STEPS
    assert torch.equal(one, another)
    assert not torch.equal(one, ours[0][0])


def test_three_ranks_train_what_ddp_does_but_for_the_order_of_sums(rank_pool: RankPool, tmp_path: Path) -> None:
    ours = rank_pool.run_in_process_group(3, train, tmp_path, "dense", "buckets")
    theirs = rank_pool.run_in_process_group(3, train, tmp_path, None, "buckets")
    assert all(torch.equal(mine, ours[0][0]) for mine, _ in ours)
    torch.testing.assert_close(ours[0][0], theirs[0][0], rtol=1e-5, atol=1e-6)
    compressed = rank_pool.run_in_process_group(3, train, tmp_path, "0.1/artopk-star-ring", "buckets")
    assert all(torch.equal(mine, compressed[0][0]) for mine, _ in compressed)


def learn(rank: int, size: int, folder: Path, plan: str) -> tuple[list[float], Tensor, str]:
    """Losses of a longer run, the weights, and the plan at its end."""
    os.chdir(folder)
    model = Network()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = trimtab.HookState(optimizer, plan=plan, run_directory="run")
    ddp.register_comm_hook(state, trimtab.hook)
    losses = []
    for number in range(120):
        loss = loss_of(ddp, number % 4, rank)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    torch.save(ddp, io.BytesIO())
    assert state.session is not None
    name = state.session.plan.name
    state.close()
    return losses, weights_of(model), name


@pytest.mark.parametrize("plan", ["0.01/all-gather", "adaptive"])
def test_training_makes_progress_and_the_run_is_recorded(rank_pool: RankPool, plan: str, tmp_path: Path) -> None:
    (losses, one, name), (_, another, _) = rank_pool.run_in_process_group(2, learn, tmp_path, plan)
    assert torch.equal(one, another)
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])
    assert plan in (name, "adaptive")
    run = tmp_path / "run"
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [each["step"] for each in steps] == list(range(120))
    assert steps[-1]["plan"] == name
    assert json.loads((run / "result.json").read_text())["state"] == "succeeded"


def account(rank: int, size: int, folder: Path, style: str, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Of all parameters: gradients of this rank, what the steps handed out, and what is held back; each added up.

    No weight moves, so that a model beside it has the same gradients.
    """
    os.chdir(folder)
    model = Network()
    alone = copy.deepcopy(model)
    ddp = DistributedDataParallel(model, **STYLES[style])
    scaler = GradScaler("cpu", init_scale=scale, enabled=scale != 1.0)
    state = trimtab.HookState(scaler=scaler, plan="0.1/all-gather", run_directory="run")
    ddp.register_comm_hook(state, trimtab.hook)
    entered = [torch.zeros_like(parameter) for parameter in model.parameters()]
    handed = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for number in range(STEPS):
        extra = uses(style, number, rank)
        scaler.scale(loss_of(ddp, number, rank, extra=extra)).backward()
        loss_of(alone, number, rank, extra=extra).backward()
        for total, each in ((handed, model), (entered, alone)):
            for sum_of, parameter in zip(total, each.parameters(), strict=True):
                if parameter.grad is not None:
                    sum_of += parameter.grad / (scale if each is model else 1.0)
                parameter.grad = None
    assert state.session is not None
    held = state.session.debug_state().residual
    residual = torch.cat([held[name].flatten() for name, _ in model.named_parameters()])
    state.close()
    return torch.cat([e.flatten() for e in entered]), torch.cat([h.flatten() for h in handed]), residual


@pytest.mark.pattern(
    "DDP's hook: `find_unused_parameters`, `static_graph`, `gradient_as_bucket_view`",
    works="unused parameters keep `grad` and residual",
)
@pytest.mark.parametrize(("style", "scale"), [("buckets", 1.0), ("unused", 1.0), ("unused", 64.0), ("views", 64.0)])
def test_what_entered_was_handed_out_or_is_held_back(
    rank_pool: RankPool, style: str, scale: float, tmp_path: Path
) -> None:
    ranks = rank_pool.run_in_process_group(2, account, tmp_path, style, scale)
    entered = sum(entered for entered, _, _ in ranks)
    held = sum(residual for _, _, residual in ranks)
    assert torch.equal(ranks[0][1], ranks[1][1])
    assert float(held.norm()) > 0.01 * float(entered.norm())
    torch.testing.assert_close(2 * ranks[0][1] + held, entered, rtol=1e-4, atol=1e-5)


def overflow(rank: int, size: int, folder: Path, scales: bool) -> list[tuple[float, bool, bool, bool]]:
    """Of each step: the scale after it, whether all gradients are infinite, whether residuals, and weights, moved.

    Rank 1's are in the second step.
    """
    os.chdir(folder)
    model = Network()
    ddp = DistributedDataParallel(model, **SMALL_BUCKETS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = GradScaler("cpu", init_scale=16.0, growth_interval=100, enabled=scales)
    state = trimtab.HookState(scaler=scaler, plan="0.1/all-gather", run_directory="run")
    ddp.register_comm_hook(state, trimtab.hook)
    seen, residual = [], torch.zeros(0)
    for number in range(3):
        loss = loss_of(ddp, number, rank)
        scaler.scale(loss * float("inf") if number == rank == 1 else loss).backward()
        infinite = all(bool(parameter.grad.isinf().all()) for parameter in model.parameters())
        before, residual_before = weights_of(model), residual
        if scales or not infinite:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
        assert state.session is not None
        residual = residual_of(state.session)
        moved = not torch.equal(before, weights_of(model))
        seen.append((scaler.get_scale(), infinite, not torch.equal(residual, residual_before), moved))
    state.close()
    return seen


@pytest.mark.pattern("DDP's hook: GradScaler", works="`trimtab.HookState(scaler=scaler)`")
@pytest.mark.parametrize("scales", [True, False])
def test_an_infinity_on_one_rank_is_seen_by_every_rank_and_leaves_residuals_as_they_were(
    rank_pool: RankPool, scales: bool, tmp_path: Path
) -> None:
    for seen in rank_pool.run_in_process_group(2, overflow, tmp_path, scales):
        assert [infinite for _, infinite, _, _ in seen] == [False, True, False]
        assert [held for _, _, held, _ in seen] == [True, False, True]
        assert [moved for _, _, _, moved in seen] == [True, False, True]
        assert [scale for scale, _, _, _ in seen] == ([16.0, 8.0, 8.0] if scales else [1.0, 1.0, 1.0])


def mistake(rank: int, size: int, folder: Path, what: str) -> str:
    """What a script is told that does what cannot work."""
    os.chdir(folder)
    dtype = torch.float64 if what == "double" else torch.float32
    model = nn.Sequential(nn.Embedding(4, 3, sparse=what == "sparse"), nn.Linear(3, 1)).to(dtype)
    groups = [dist.new_group([each]) for each in range(size)]
    ddp = DistributedDataParallel(model, process_group=groups[rank] if what == "group" else None)
    plan = {"rounds": "0.1/all-gather/source=update:steps=4", "late": "0.1/all-gather/schedule=deft"}.get(what, "dense")
    optimizer = torch.optim.LBFGS(model.parameters()) if what == "closure" else None
    state = trimtab.HookState(optimizer, plan=plan, run_directory="run")
    ddp.register_comm_hook(groups[rank] if what == "state" else state, trimtab.hook)
    try:
        ddp(torch.tensor([rank])).sum().backward()
        if what == "second":
            other = DistributedDataParallel(nn.Linear(2, 1))
            other.register_comm_hook(state, trimtab.hook)
            other(torch.ones(2)).sum().backward()
        if what == "third":
            other = DistributedDataParallel(nn.Linear(2, 1))
            other.register_comm_hook(trimtab.HookState(plan=plan, run_directory="other"), trimtab.hook)
            other(torch.ones(2)).sum().backward()
        if what == "attach":
            trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    except UserError as error:
        return str(error)
    finally:
        state.close()
    return ""


@pytest.mark.pattern(
    "DDP's hook: gradients of another type, or sparse ones",
    refused="`trimtab.hook takes gradients in float32; ...`, `takes dense gradients; ...`",
)
@pytest.mark.pattern(
    "DDP's hook: a wrapper of some processes only (`process_group`)",
    refused="`trimtab.hook exchanges among all processes`",
)
@pytest.mark.pattern(
    "DDP's hook: two models, or a hook beside a session",
    refused="`exchanges for one model, ...`",
)
@pytest.mark.pattern(
    "DDP's hook: plans of local steps, or that delay gradients",
    refused="`makes rounds of local steps, ...`",
)
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("double", "gradient: 'torch.float64': trimtab.hook takes gradients in float32; keep parameters in float32"),
        ("sparse", "gradient: 'torch.sparse_coo': trimtab.hook takes dense gradients; make the model's nn.Embedding"),
        ("group", "DistributedDataParallel.process_group: '1 of 2 processes': trimtab.hook exchanges among all"),
        ("rounds", "plan.source: 'update:steps=4': makes rounds of local steps, and a hook of DDP's is not told"),
        ("late", "plan.schedule: 'deft': delays gradients, which is not supported"),
        ("state", "state: 'ProcessGroup': is None or a trimtab.HookState"),
        ("closure", "optimizer: 'LBFGS': evaluates the model by a closure several times a step"),
        ("second", "trimtab.hook: exchanges for one model, and got a gradient of another"),
        ("third", "attach: this process already has an open session"),
        ("attach", "attach: this process already has an open session"),
    ],
)
def test_what_cannot_work_is_refused_on_every_rank(rank_pool: RankPool, what: str, said: str, tmp_path: Path) -> None:
    for told in rank_pool.run_in_process_group(2, mistake, tmp_path, what):
        assert told.startswith(said)


def dying(rank: int, size: int, folder: Path) -> None:
    os.chdir(folder)
    model = Network()
    ddp = DistributedDataParallel(model, **SMALL_BUCKETS)
    state = trimtab.HookState(plan="0.1/all-gather", run_directory="run")
    ddp.register_comm_hook(state, trimtab.hook)
    for number in range(STEPS):
        if number == 3 and rank == 1:
            os._exit(1)
        loss_of(ddp, number, rank).backward()


def test_a_rank_that_dies_ends_the_backward_pass_of_the_others(rank_pool: RankPool, tmp_path: Path) -> None:
    with pytest.raises(RankError) as raised:
        rank_pool.run_in_process_group(2, dying, tmp_path)
    assert raised.value.kind is CommunicationError
    assert raised.value.peer == 1


def after_it(rank: int, size: int, folder: Path) -> tuple[list[bool], int]:
    """Whether gradients are the mean, alone by DDP's all-reduce once the hook was closed; and the steps recorded."""
    os.chdir(folder)
    model = nn.Linear(2, 1)
    ddp = DistributedDataParallel(model)
    state = trimtab.HookState(run_directory="run", plan="dense")
    ddp.register_comm_hook(state, trimtab.hook)
    are_means = []
    for number in range(3):
        ddp(torch.full((1, 2), float(rank + 1))).sum().backward()
        are_means.append(bool((model.weight.grad == (size + 1) / 2).all()))
        model.weight.grad = None
        if number == 1:
            state.close()
    return are_means, state.session.steps


@pytest.mark.pattern("DDP's hook: one process, or `state.close()`", works="DDP's own mean")
@pytest.mark.parametrize("size", [1, 2])
def test_one_process_and_a_closed_hook_leave_the_mean_to_ddp(rank_pool: RankPool, size: int, tmp_path: Path) -> None:
    for are_means, steps in rank_pool.run_in_process_group(size, after_it, tmp_path):
        assert are_means == [True, True, True]
        assert steps == 2
    assert (tmp_path / "run").exists() == (size == 2)


def launched(folder: Path, *command: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    argv, environment = [sys.executable, "-m", *map(str, command)], {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert (ended.returncode != 0) == bool(code), ended.stderr
    return ended


def recorded(run: Path) -> tuple[int, dict[str, Any]]:
    """The steps of a run, and how it ended."""
    steps = (run / "metrics.jsonl").read_text().splitlines()
    return len(steps), json.loads((run / "result.json").read_text())


@pytest.mark.pattern("DDP's communication hook", works="`ddp_model.register_comm_hook(None, trimtab.hook)`")
@pytest.mark.slow
def test_torchrun_needs_one_line_and_nothing_stays_behind(tmp_path: Path) -> None:
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", HOOKED)
    ended = launched(tmp_path, *torchrun)
    weights_of = re.findall(r"ends with (\S+)\.", ended.stdout)
    assert len(weights_of) == 2
    assert len(set(weights_of)) == 1
    assert "trials are disabled" not in ended.stderr
    num_steps, result = recorded(tmp_path / "runs/hooked")
    assert (num_steps, result["state"]) == (30, "succeeded")
    assert main(["report", str(tmp_path / "runs/hooked")]) == 0
    assert not (tmp_path / "runs/hooked/status.address").exists()
    launched(tmp_path, *torchrun, "--raise=0", code=1)
    _, result = recorded(tmp_path / "runs/hooked")
    assert (result["state"], result["message"]) == ("failed", "rank 0 ended with RuntimeError: as it was told to")


@pytest.mark.full
@pytest.mark.slow
def test_under_trimtab_run_it_is_a_run_as_others(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: hooked}\nspec:\n  workers: 2\n"
        f"  template: {{spec: {{containers: [{{name: trainer, command: [python, '{HOOKED}']}}]}}}}\n"
    )
    launched(tmp_path, "trimtab", "run", "job.yaml", "--out", "run", "--plan", "0.1/all-gather")
    num_steps, result = recorded(tmp_path / "run")
    assert (num_steps, result["state"]) == (30, "succeeded")
    logs = [(tmp_path / f"run/logs/rank-{rank}.log").read_text() for rank in (0, 1)]
    assert logs[0].split("ends with")[1] == logs[1].split("ends with")[1]
