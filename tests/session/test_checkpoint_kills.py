"""A job that is killed at any moment of the documented checkpoint goes on from that one or from the one before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import trimtab
from kit.rank_pool import RankPool
from kit.training.held_back import residual_of
from torch import nn
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.errors import UserError

SIZE = 2
STEPS = 3
"""Between two checkpoints."""


class Killed(BaseException):
    """Ends a process as a kill does: nothing is cleaned up."""


class KilledAt:
    """Kills before the file operation of that number: each of this thread that changes what a folder or file holds."""

    def __init__(self, number: int) -> None:
        self.left = number
        self._thread = threading.get_ident()
        self._undo = pytest.MonkeyPatch()
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (torch, "save")):
            self._undo.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, operation):  # type: ignore[no-untyped-def]
        def counted(*args, **options):  # type: ignore[no-untyped-def]
            if threading.get_ident() == self._thread:
                self.left -= 1
                if self.left == 0:
                    raise Killed
            return operation(*args, **options)

        return counted

    def undo(self) -> None:
        self._undo.undo()


class Job:
    """One rank's part of a script that checkpoints as the reference says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        torch.manual_seed(0)
        self.model = nn.Linear(6, 4)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        checkpoint = trimtab.read_checkpoint(folder / "model.pt")
        if checkpoint is not None:
            self.model.load_state_dict(checkpoint["model"])
        plan = Plan.parse("0.2/all-gather")
        self.session = Session(self.model, optimizer, group=Group.connect(), plan=plan, recorder=Recorder(None))
        if checkpoint is not None:
            self.session.load_state_dict(checkpoint["session"])
            self.session.load_exchange(self.exchange)

    @property
    def exchange(self) -> Path:
        """One folder a rank, as on hosts of their own; in a shared one, either rank may remove an old file."""
        return self.folder / f"exchange-{self.session.rank}"

    def train(self) -> None:
        for _ in range(STEPS):
            x = torch.full((2, 6), float(self.session.rank + self.session.steps % 5))
            self.model(x).square().mean().backward()
            self.session.step()

    def save(self) -> None:
        self.session.save_exchange(self.exchange)
        if self.session.is_main:
            state = {"model": self.model.state_dict(), "session": self.session.state_dict()}
            trimtab.write_checkpoint(self.folder / "model.pt", state)

    def state(self) -> list[float]:
        return [*self.model.weight.flatten().tolist(), *residual_of(self.session).tolist()]


def never_stopped(rank: int, size: int, folder: Path) -> list[list[float]]:
    """What one rank holds after each checkpoint."""
    job, states = Job(folder), []
    for _ in range(4):
        job.train()
        job.save()
        states.append(job.state())
    job.session.close()
    return states


def killed(rank: int, size: int, folder: Path, expected: list[list[list[float]]]) -> list[int]:
    """Kills the job at each operation of its third checkpoint in turn; the steps that it went on from."""
    steps: list[int] = []
    while True:
        own = folder / str(len(steps))
        job = Job(own)
        for _ in range(2):
            job.train()
            job.save()
        job.train()
        at = KilledAt(len(steps) + 1)
        was_killed = False
        try:
            job.save()
        except Killed:
            was_killed = True
        at.undo()
        any_was_killed = job.session.all_reduce(float(was_killed), "max")
        job.session.close()
        if not any_was_killed:
            return steps
        again = Job(own)
        steps.append(int(again.session.steps))
        assert again.state() == expected[rank][steps[-1] // STEPS - 1]
        again.train()
        again.save()
        assert again.state() == expected[rank][steps[-1] // STEPS]
        again.session.close()


@pytest.mark.slow
def test_a_job_goes_on_bit_for_bit_wherever_its_checkpoint_was_killed(rank_pool: RankPool, tmp_path: Path) -> None:
    expected = rank_pool.run_in_process_group(SIZE, never_stopped, tmp_path / "whole")
    first, second = rank_pool.run_in_process_group(SIZE, killed, tmp_path, expected)
    assert first == second
    assert len(first) >= 9, "operations: four for each of two files, and one that keeps the previous"
    assert sorted(first) == first, "the later the kill, the newer what is there"
    assert set(first) == {2 * STEPS, 3 * STEPS}


WRITER = """
import sys, trimtab
for number in range(1, 10**6):
    trimtab.write_checkpoint(sys.argv[1], {"number": number, "padding": b"x" * 200_000})
    print(number, flush=True)
"""


def test_a_file_is_whole_after_a_real_kill(tmp_path: Path) -> None:
    path, last = tmp_path / "model.pt", 0
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        while last < 5:
            last = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        last = max([last, *map(int, writer.stdout.read().split())])
    assert last <= trimtab.read_checkpoint(path)["number"] <= last + 1


def test_a_torn_file_is_left_for_the_one_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "folder" / "model.pt"
    assert trimtab.read_checkpoint(path) is None
    for number in (1, 2):
        trimtab.write_checkpoint(path, {"number": number})
        assert trimtab.read_checkpoint(path) == {"number": number}
        assert torch.load(path, weights_only=True) == {"number": number}
    content = path.read_bytes()
    path.write_bytes(content[:-100] + b"?" + content[-99:])
    assert trimtab.read_checkpoint(path) == {"number": 1}
    assert f"{path}: is damaged" in capsys.readouterr().err
    (path.parent / "model.pt.previous").write_bytes(content[:300])
    with pytest.raises(UserError, match=r"model\.pt: is damaged: its checksum is not that of its contents"):
        trimtab.read_checkpoint(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/model\.pt: cannot be written"):
        trimtab.write_checkpoint(tmp_path / "file" / "model.pt", {})
