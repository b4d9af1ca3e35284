"""torch.distributed.checkpoint keeps a session beside the model, and the loaded run equals one that never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from kit.rank_pool import RankError, RankPool
from kit.training.held_back import total_of
from torch import Tensor, nn
from torch.distributed.checkpoint.stateful import Stateful
from torch.utils.data import DataLoader, TensorDataset
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.errors import UserError

STEPS, SAVED_AT = 8, 5


class Job:
    def __init__(self, size: int, text: str, width: int = 16) -> None:
        torch.manual_seed(0)
        parts = [nn.Linear(6, width), nn.BatchNorm1d(width), nn.Dropout(0.3), nn.Linear(width, 3)]
        self.model = nn.Sequential(*parts)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        plan = Plan.parse(text, FusionPlan((0, 40)))
        self.session = Session(self.model, self.optimizer, group=Group.connect(), plan=plan, recorder=Recorder(None))
        generator = torch.Generator().manual_seed(1)
        num = STEPS * 4 * size
        self.data = TensorDataset(torch.randn(num, 6, generator=generator), torch.randn(num, 3, generator=generator))
        self.run = self._steps()

    def _steps(self) -> Any:
        for inputs, targets in self.session.batches(DataLoader(self.data, batch_size=4, shuffle=True)):
            loss = nn.functional.mse_loss(self.model(inputs), targets)
            loss.backward()
            self.session.step(loss)
            yield int(self.session.steps)

    def kept(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "session": self.session.stateful,
        }

    def train(self) -> None:
        for _ in self.run:
            pass

    def state(self) -> list[Tensor]:
        self.session.end_round()
        kept = [each.detach().clone() for each in (*self.model.parameters(), *self.model.buffers())]
        held = total_of(self.session, "residual", "waiting", "arrived")
        self.session.close()
        return [*kept, held, torch.rand(2)]


def never_stopped(rank: int, size: int, text: str, folder: Path) -> list[Tensor]:
    job = Job(size, text)
    while next(job.run) != SAVED_AT:
        pass
    assert isinstance(job.session.stateful, Stateful)
    dcp.save(job.kept(), checkpoint_id=folder)
    torch.save(job.session.stateful.state_dict(), folder / f"alone-{rank}.pt")
    job.train()
    return job.state()


def loaded(rank: int, size: int, text: str, folder: Path, how: str = "dcp") -> list[Tensor]:
    job = Job(size, "dense" if "update" not in text else text)  # whatever plan the new processes begin under
    for group in job.optimizer.param_groups:  # the state must be there to be loaded
        for parameter in group["params"]:
            job.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    kept = job.kept()
    session = {"session": kept.pop("session")}
    dcp.load(kept, checkpoint_id=folder)
    job.model.load_state_dict(kept["model"])
    job.optimizer.load_state_dict(kept["optimizer"])
    if how == "dcp":
        dcp.load(session, checkpoint_id=folder)
    else:
        job.session.stateful.load_state_dict(torch.load(folder / f"alone-{rank}.pt", weights_only=True))
    assert job.session.steps == SAVED_AT
    job.train()
    return job.state()


@pytest.mark.pattern("`torch.distributed.checkpoint`", works="`session.stateful` beside model and optimizer")
@pytest.mark.parametrize(
    "text", ["0.05/exdyna/sparsifier=sidco", "0.1/all-gather/source=update:steps=4", "0.3/all-gather/schedule=deft"]
)
def test_four_ranks_go_on_bit_for_bit(rank_pool: RankPool, tmp_path: Path, text: str) -> None:
    whole = rank_pool.run_in_process_group(4, never_stopped, text, tmp_path)
    again = rank_pool.run_in_process_group(4, loaded, text, tmp_path)
    for state, state_again in zip(whole, again, strict=True):
        assert all(map(torch.equal, state, state_again))


def other_ranks(rank: int, size: int, folder: Path) -> str:
    job = Job(size, "dense")
    with pytest.raises(UserError) as refused:
        job.session.stateful.load_state_dict(torch.load(folder / "alone-0.pt", weights_only=True))
    with pytest.raises(dcp.api.CheckpointException) as missing:
        dcp.load({"session": job.session.stateful}, checkpoint_id=folder)
    job.session.close()
    return f"{refused.value}\n{missing.value}"


def test_plain_files_load_and_other_ranks_are_refused(rank_pool: RankPool, tmp_path: Path) -> None:
    text = "0.1/all-gather"
    whole = rank_pool.run_in_process_group(2, never_stopped, text, tmp_path)
    again = rank_pool.run_in_process_group(2, loaded, text, tmp_path, "torch.load")
    for state, state_again in zip(whole, again, strict=True):
        assert all(map(torch.equal, state, state_again))
    for said in rank_pool.run_in_process_group(3, other_ranks, tmp_path):
        assert "another number of ranks goes on by spec.checkpoint or session.save_exchange" in said.splitlines()[0]
        assert "Missing key in checkpoint state_dict: session.made by 3 ranks (another number of ranks goes on" in said


def wrong_model(rank: int, size: int, folder: Path) -> None:
    job = Job(size, "dense", width=20)
    job.session.stateful.load_state_dict(torch.load(folder / f"alone-{rank}.pt", weights_only=True))


def test_the_state_of_another_model_is_refused(rank_pool: RankPool, tmp_path: Path) -> None:
    rank_pool.run_in_process_group(2, never_stopped, "dense", tmp_path)
    with pytest.raises(RankError, match="is of another model or memory format"):
        rank_pool.run_in_process_group(2, wrong_model, tmp_path)
