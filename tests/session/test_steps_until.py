"""A loop over ``session.steps_until`` draws its own batches, goes on after a restart, and runs its trials by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.run_processes import wait_until
from kit.training.held_back import total_of
from kit.training.random_training import THREE_BUFFERS, assert_same, make_session, network, state, trials_message
from kit.training.scripted_control import Script
from torch import Tensor, nn
from trimtab.checkpoint.manifest import saved
from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.checkpoint.store import LocalStore
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.errors import UserError

STEPS, SAVED_AT = 10, 4
DATA = torch.randn(64, 8, generator=torch.Generator().manual_seed(3))


class Cursor:
    """The script's own position in its data."""

    def __init__(self) -> None:
        self.at = 0

    def next(self) -> Tensor:
        self.at += 4
        return DATA[(torch.arange(4) + self.at) % len(DATA)]

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        self.at = kept["at"]


class Job:
    def __init__(self, rank: int, size: int, text: str, folder: Path) -> None:
        torch.manual_seed(0)
        self.model, self.cursor, self.numbers = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 1)), Cursor(), list[int]()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.session = Session(
            self.model,
            self.optimizer,
            group=Group.connect() if size > 1 else None,
            plan=Plan.parse(text, FusionPlan((0, 40))),
            recorder=Recorder(None),
            options=SessionOptions(extra_state=[self.cursor]),
            checkpoints=CheckpointSettings(str(folder), "job", steps=SAVED_AT),
        )
        self.noise = torch.Generator().manual_seed(rank)
        self.run = self._steps()

    def _steps(self) -> Iterator[int]:
        for step in self.session.steps_until(STEPS):
            self.numbers.append(step)
            batch = self.cursor.next() + torch.rand(4, 8)
            self.model(batch).square().mean().backward()
            self.session.step()
            yield step

    def answer(self) -> tuple[list[Tensor], list[int]]:
        held = [total_of(self.session, "residual", "waiting", "arrived")] if self.session.num_ranks > 1 else []
        answer = [*(each.detach().clone() for each in self.model.parameters()), *held, torch.rand(2)]
        self.session.close()
        return answer, self.numbers


def never_stopped(rank: int, size: int, text: str, folder: Path) -> tuple[list[Tensor], list[int]]:
    job = Job(rank, size, text, folder)
    for step in job.run:
        if step == SAVED_AT:  # the turn before has written what was due by then
            if rank == 0:
                wait_until(lambda: bool(saved(LocalStore(folder))))
                shutil.copytree(folder, folder.with_name("kept"))
            job.session.barrier()
    return job.answer()


def resumed(rank: int, size: int, text: str, folder: Path) -> tuple[list[Tensor], list[int]]:
    job = Job(rank, size, text, folder)
    list(job.run)
    return job.answer()


@pytest.mark.pattern(
    "a loop that draws its own batches",
    works="`for step in session.steps_until(n)`",
)
@pytest.mark.parametrize(
    ("size", "text"), [(1, "dense"), (2, "0.1/all-gather"), (2, "0.1/all-gather/source=update:steps=4")]
)
def test_a_restored_run_goes_on_with_the_next_number(rank_pool: RankPool, tmp_path: Path, size: int, text: str) -> None:
    whole = rank_pool.run_in_process_group(size, never_stopped, text, tmp_path / "checkpoints")
    again = rank_pool.run_in_process_group(size, resumed, text, tmp_path / "kept")
    for (tensors, numbers), (tensors_again, numbers_again) in zip(whole, again, strict=True):
        assert numbers == list(range(STEPS))
        assert numbers_again == list(range(SAVED_AT, STEPS))
        assert all(map(torch.equal, tensors, tensors_again))


def trained(rank: int, size: int, trials: bool) -> tuple[dict[str, Any], list[int], int]:
    script = Script({3: trials_message()} if trials else {}) if rank == 0 else None
    model = network()
    session, optimizer, scheduler = make_session(
        Plan.parse("0.1/all-gather", THREE_BUFFERS), model, control_client=script
    )
    torch.manual_seed(rank)
    taken, num_turns = [], 0
    for step in session.steps_until(STEPS):
        x = DATA[torch.randint(len(DATA), (8,))]
        loss = nn.functional.cross_entropy(model(x), (x.sum(dim=1) > 0).long())
        loss.backward()
        session.step(loss)
        num_turns += 1
        if not session.in_trial:
            taken.append(step)
    left = state(session, model, optimizer, scheduler)
    session.close()
    return left, [int(each) for each in taken], num_turns


def test_trials_on_the_way_leave_everything_as_it_was(rank_pool: RankPool) -> None:
    without, tried = (rank_pool.run_in_process_group(2, trained, trials) for trials in (False, True))
    for (state_a, numbers, turns), (state_b, numbers_b, turns_b) in zip(without, tried, strict=True):
        assert_same(state_a, state_b)
        assert numbers == numbers_b == list(range(STEPS))
        assert (turns, turns_b) == (STEPS, STEPS + 3 * 4)


def nested(rank: int, size: int) -> list[str]:
    session, *_ = make_session(Plan.parse("dense", THREE_BUFFERS), network(), control_client=None)
    said = []
    for call in (
        lambda: [list(session.steps_until(2)) for _ in session.batches([0, 1])],
        lambda: [list(session.steps_until(2)) for _ in session.steps_until(2)],
        lambda: [session.trials(lambda: None) for _ in session.steps_until(2)],
        lambda: list(session.steps_until(2.5)),  # type: ignore[arg-type]
    ):
        with pytest.raises(UserError) as refused:
            call()
        said.append(str(refused.value))
    assert list(session.steps_until(0)) == []
    session.close()
    return said


def test_it_is_refused_within_another_loop(rank_pool: RankPool) -> None:
    for said in rank_pool.run_in_process_group(2, nested):
        assert said[0].startswith("session.steps_until: is called in a loop over session.batches")
        assert said[1].startswith("session.steps_until: is called in a loop over session.steps_until")
        assert said[2].startswith("session.trials: is called in a loop over session.steps_until")
        assert said[3] == "session.steps_until: '2.5': hand over a whole number"
