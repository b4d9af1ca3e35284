"""A job that was stopped goes on from its checkpoint as if it never had been: bit for bit on as many ranks."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.rank_pool import RankError, RankPool
from kit.run_processes import wait_until
from kit.training.held_back import total_of
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import DataLoader, TensorDataset
from trimtab.checkpoint import manifest
from trimtab.checkpoint.manifest import saved
from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.checkpoint.store import LocalStore
from trimtab.engine.optimizer.loss_scale import LossScale
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.session import Session
from trimtab.transport.group import Group

EPOCHS, STEPS_PER_EPOCH = 3, 8
#: In the midst of the second epoch.
SAVED_AT = 11
PLANS = [
    "dense",
    "0.05/all-gather",
    "0.05/exdyna/sparsifier=sidco",
    "0.1/spardl/sparsifier=mstopk",
    "0.1/artopk-star-ring/sparsifier=random-k/source=gradient:momentum=0.9",
    "0.1/all-gather/source=update:steps=4",
    "0.1/all-gather/schedule=overlap/source=update:steps=4",
]


class Averages:
    """What a script hands over by ``extra_state``: averaged weights."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.kept = model, [each.detach().clone() for each in model.parameters()]

    def update(self) -> None:
        for kept, live in zip(self.kept, self.model.parameters(), strict=True):
            kept.lerp_(live.detach(), 0.5)

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = [each.clone() for each in state["kept"]]


class Script:
    """One rank's script, which has no line about checkpoints."""

    def __init__(self, text: str, folder: Path | None, ranks: int = 2, width: int = 40, **settings: Any) -> None:
        torch.manual_seed(5)
        self.model = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.Dropout(0.3), nn.Linear(width, 3))
        momentum = 0.0 if "momentum" in text else 0.9
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=momentum)
        if "update" in text:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 5, 0.5)
        self.averages, self.scaler = Averages(self.model), GradScaler("cpu", init_scale=2.0**6, growth_interval=3)
        options = SessionOptions(self.scheduler, "step", LossScale(self.scaler), [self.averages])
        checkpoints = None if folder is None else CheckpointSettings(str(folder), "job", **settings)
        plan = Plan.parse(text, FusionPlan((0, 40)))
        self.session = Session(
            self.model,
            self.optimizer,
            group=Group.connect(),
            plan=plan,
            recorder=Recorder(None),
            options=options,
            checkpoints=checkpoints,
        )
        num = STEPS_PER_EPOCH * 4 * ranks
        generator = torch.Generator().manual_seed(1)
        self.data = TensorDataset(torch.randn(num, 6, generator=generator), torch.randn(num, 3, generator=generator))
        self.seen: list[list[float]] = []
        self.seen_in_evaluation: list[float] = []

        self.run = self._steps()

    def _steps(self) -> Iterator[int]:
        for _ in self.session.epochs(EPOCHS):
            for inputs, targets in self.session.batches(DataLoader(self.data, batch_size=4, shuffle=True)):
                self.seen.append(inputs[:, 0].tolist())
                loss = nn.functional.mse_loss(self.model(inputs), targets)
                self.scaler.scale(loss).backward()
                self.session.step(loss)
                self.averages.update()
                if self.session.steps == SAVED_AT:
                    self._evaluate()
                yield int(self.session.steps)

    def _evaluate(self) -> None:
        """Loop over data in the midst of an epoch, by the generators that training draws from."""
        for inputs, _ in self.session.batches(DataLoader(self.data, batch_size=32, shuffle=True)):
            self.seen_in_evaluation.append(self.model(inputs).mean().item())

    def train(self, until: int | None = None) -> None:
        """Train on to the end, or until so many steps are taken."""
        for steps in self.run:
            if steps == until:
                return

    def state(self) -> list[Tensor]:
        self.session.end_round()
        buffers = [each.detach().clone() for each in (*self.model.parameters(), *self.model.buffers())]
        held = total_of(self.session, "residual", "waiting", "arrived")
        return [*buffers, *self.averages.kept, held, torch.rand(2), torch.tensor(self.scaler.get_scale())]


def never_stopped(rank: int, size: int, text: str, folder: Path, how: str) -> tuple[list[Tensor], list[list[float]]]:
    """Train to the end; what is in ``folder`` when `SAVED_AT` steps are kept is copied beside it."""
    script = Script(text, folder, size, **({"steps": SAVED_AT} if how == "by itself" else {}))
    script.train(SAVED_AT)
    if how == "asked for":
        script.session.checkpoint()
    else:
        next(script.run)  # it is written when the script asks for the batch of the next step
    if rank == 0:
        wait_until(lambda: bool(saved(LocalStore(folder))))
    if rank == 0:
        shutil.copytree(folder, folder.with_name("kept"))
    script.session.barrier()
    script.train()
    answer = script.state(), script.seen[SAVED_AT:]
    script.session.close()
    return answer


def resumed(rank: int, size: int, text: str, folder: Path) -> tuple[list[Tensor], list[list[float]]]:
    script = Script(text, folder, size)
    assert script.session.steps == SAVED_AT
    script.train()
    answer = script.state(), script.seen
    script.session.close()
    return answer


@pytest.mark.parametrize("text", PLANS)
def test_a_resumed_job_equals_one_that_was_never_stopped(rank_pool: RankPool, tmp_path: Path, text: str) -> None:
    how = "asked for" if "update" in text or text == "dense" else "by itself"
    whole = rank_pool.run_in_process_group(2, never_stopped, text, tmp_path / "checkpoints", how)
    again = rank_pool.run_in_process_group(2, resumed, text, tmp_path / "kept")
    for (state, seen), (state_again, seen_again) in zip(whole, again, strict=True):
        assert seen == seen_again
        assert all(map(torch.equal, state, state_again))


def with_others(rank: int, size: int, text: str, folder: Path, mean_before: Tensor) -> tuple[Tensor, int, int]:
    """What this rank holds back once it has taken over the checkpoint of others, and how many samples it has seen."""
    script = Script(text, folder, 4)
    held = total_of(script.session, "residual", "waiting")
    script.train()
    return held, int(script.session.steps), len(script.seen)


def saved_by_four(rank: int, size: int, text: str, folder: Path) -> Tensor:
    script = Script(text, folder, size)
    script.train(SAVED_AT)
    script.session.checkpoint()
    held = total_of(script.session, "residual", "waiting")
    script.session.close()
    return held


@pytest.mark.parametrize("size", [2, 3, 6])
def test_fewer_or_more_ranks_go_on_and_nothing_that_was_held_back_is_lost(
    rank_pool: RankPool, tmp_path: Path, size: int
) -> None:
    text = "0.05/all-gather"
    before = rank_pool.run_in_process_group(4, saved_by_four, text, tmp_path / "checkpoints")
    after = rank_pool.run_in_process_group(size, with_others, text, tmp_path / "checkpoints", before[0])
    mean_before, mean_after = (torch.stack(list(each)).double().mean(0) for each in (before, [a[0] for a in after]))
    assert torch.allclose(mean_before, mean_after, atol=1e-6)
    assert len({steps for _, steps, _ in after}) == 1


def refused(rank: int, size: int, folder: Path, change: str) -> int:
    if change == "another model":
        Script("dense", folder, size, width=50)
    script = Script("dense", folder, size)
    steps = int(script.session.steps)
    script.session.close()
    return steps


def saved_twice(rank: int, size: int, folder: Path) -> None:
    script = Script("dense", folder, size)
    for until in (3, 6):
        script.train(until)
        script.session.checkpoint()
    script.session.close()


def test_a_damaged_checkpoint_gives_way_to_the_one_before(rank_pool: RankPool, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    rank_pool.run_in_process_group(2, saved_twice, folder)
    newest = saved(LocalStore(folder))[0]
    torn = next((folder / newest.folder).glob("rank-1-*.safetensors"))
    torn.write_bytes(torn.read_bytes()[:-1])
    assert rank_pool.run_in_process_group(2, refused, folder, "") == [3, 3]
    with pytest.raises(RankError, match=r"holds checkpoints of another model .* name another path"):
        rank_pool.run_in_process_group(2, refused, folder, "another model")


def without_room(rank: int, size: int, folder: Path) -> tuple[int, str]:
    """Steps taken, and what was said, where rank 1 cannot write."""
    script, said = Script("dense", folder, size), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        if rank == 1:
            patch.setattr(LocalStore, "write", no_room)
        patch.setattr(manifest, "QUIET_SECONDS", 0.5)
        script.train(3)
        script.session.checkpoint()
        script.train(6)
        script.session.checkpoint()
    script.train()
    steps = int(script.session.steps)
    script.session.close()
    return steps, said.getvalue()


def no_room(self: LocalStore, name: str, data: bytes) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_delays_checkpoints_and_never_training(rank_pool: RankPool, tmp_path: Path) -> None:
    (steps, first), (_, second) = rank_pool.run_in_process_group(2, without_room, tmp_path / "checkpoints")
    assert steps == EPOCHS * STEPS_PER_EPOCH
    assert "rank-1.json is missing; training goes on" in first
    assert "rank 1: checkpoint of step 3: No space left on device; training goes on" in second
    assert saved(LocalStore(tmp_path / "checkpoints")) == []


@pytest.mark.parametrize("counts_by_itself", [True, False])
def test_a_script_that_counts_epochs_by_itself_is_told_that_it_repeats_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, counts_by_itself: bool
) -> None:
    def started() -> tuple[nn.Module, Session]:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        settings = CheckpointSettings(str(tmp_path), "job")
        plan = Plan.parse("dense", FusionPlan((0,)))
        return model, Session(model, optimizer, group=None, plan=plan, recorder=Recorder(None), checkpoints=settings)

    def train(model: nn.Module, session: Session, epochs: Iterable[int]) -> None:
        for _ in epochs:
            for batch in session.batches([torch.ones(2)]):
                loss = model(batch).sum()
                loss.backward()
                session.step(loss)

    model, first = started()
    train(model, first, range(2) if counts_by_itself else first.epochs(2))
    first.checkpoint()
    first.close()
    model, second = started()
    epochs = range(3) if counts_by_itself else second.epochs(3)
    train(model, second, epochs)
    second.close()
    told = "a script that counts epochs by itself trains as many again" in caplog.text
    assert told == counts_by_itself


def test_a_script_that_loads_its_session_by_itself_is_not_told_so(caplog: pytest.LogCaptureFixture) -> None:
    def train(num_epochs: int, state: dict[str, Any] | None) -> dict[str, Any]:
        model = nn.Linear(2, 1)
        plan = Plan.parse("dense", FusionPlan((0,)))
        session = Session(
            model, torch.optim.SGD(model.parameters(), lr=0.1), group=None, plan=plan, recorder=Recorder(None)
        )
        if state is not None:
            session.stateful.load_state_dict(state)
        for _ in range(num_epochs):
            for batch in session.batches([torch.ones(2)]):
                loss = model(batch).sum()
                loss.backward()
                session.step(loss)
        kept = session.stateful.state_dict()
        session.close()
        return kept

    train(1, train(2, None))
    assert "counts epochs by itself" not in caplog.text
