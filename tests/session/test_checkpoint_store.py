"""All ranks refuse a place for checkpoints that one cannot write, that is not one, or that holds another job's."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.rank_pool import RankError, RankPool
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader
from trimtab.checkpoint import store_probe
from trimtab.checkpoint.manifest import saved
from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.checkpoint.store import LocalStore
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session import training
from trimtab.session.checkpoints import proven_store, tiers
from trimtab.session.options import SessionOptions
from trimtab.session.rank_ops import RankOps
from trimtab.session.session import Session
from trimtab.transport.group import Group


def attached(where: Path, job: str = "job", from_job: str | None = None, **settings: Any) -> Session:
    model = nn.Linear(2, 2)
    return Session(
        model,
        SGD(model.parameters(), lr=0.1),
        group=Group.connect(),
        plan=Plan.parse("dense", FusionPlan((0,))),
        recorder=Recorder(None),
        options=SessionOptions(),
        checkpoints=CheckpointSettings(str(where), job, from_job=from_job, **settings),
    )


def with_trouble_on_rank_1(rank: int, size: int, folder: Path, trouble: str) -> str:
    """What is said where rank 1 cannot write there."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        if rank == 1 and trouble != "another directory":
            patch.setattr(LocalStore, "write", lambda *_: refuse(int(trouble)))
        patch.setattr(store_probe, "_LOOK_SECONDS", 0.0)
        own = folder / str(rank) if trouble == "another directory" else folder
        attached(own).close()
    return said.getvalue()


def refuse(number: int) -> None:
    raise OSError(number, os.strerror(number))


def test_a_place_that_one_rank_cannot_write_is_refused_by_all(rank_pool: RankPool, tmp_path: Path) -> None:
    with pytest.raises(
        RankError, match=r"rank 1: spec\.checkpoint\.path: '.*': cannot be written \(Permission denied\)"
    ):
        rank_pool.run_in_process_group(2, with_trouble_on_rank_1, tmp_path, "13")
    with pytest.raises(RankError, match="is not one place: rank 0 does not find what rank 1 wrote there"):
        rank_pool.run_in_process_group(2, with_trouble_on_rank_1, tmp_path, "another directory")
    _, said = rank_pool.run_in_process_group(2, with_trouble_on_rank_1, tmp_path, "28")
    assert f"rank 1: spec.checkpoint.path: {tmp_path} has no room (No space left on device)" in said
    assert list(tmp_path.glob("write-test")) == []


def saved_as(rank: int, size: int, folder: Path, job: str, from_job: str | None) -> None:
    session = attached(folder, job, from_job)
    session.checkpoint()
    session.close()


def test_checkpoints_of_another_name_are_refused_unless_the_job_had_it(rank_pool: RankPool, tmp_path: Path) -> None:
    rank_pool.run_in_process_group(2, saved_as, tmp_path, "before", None)
    remedy = "holds checkpoints of the job before, and this one is after; set spec.checkpoint.fromJob to before"
    with pytest.raises(RankError, match=remedy):
        rank_pool.run_in_process_group(2, saved_as, tmp_path, "after", None)
    rank_pool.run_in_process_group(2, saved_as, tmp_path, "after", "before")
    with pytest.raises(RankError, match="holds checkpoints of the job after"):
        rank_pool.run_in_process_group(2, saved_as, tmp_path, "before", None)


class Clock:
    """Seconds that pass when a test says so."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class SlowStore(LocalStore):
    """A directory whose writes wait until they may go on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.may_go_on = threading.Event()

    def write(self, name: str, data: bytes | memoryview) -> None:
        assert self.may_go_on.wait(60)
        super().write(name, data)


def test_a_slow_store_delays_the_next_checkpoint_and_never_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, store = Clock(), SlowStore(tmp_path)
    monkeypatch.setattr(proven_store, "write_probe", lambda *_: ("", ""))
    monkeypatch.setattr(tiers, "open_store", lambda where: store)
    monkeypatch.setattr(training, "Checkpointing", functools.partial(training.Checkpointing, now=clock))
    (tmp_path / "run").mkdir()
    model = nn.Linear(100, 100)
    session = Session(
        model,
        SGD(model.parameters(), lr=0.1),
        group=None,
        ranks=RankOps(None),
        plan=Plan.parse("dense"),
        recorder=Recorder(tmp_path / "run"),
        options=SessionOptions(),
        checkpoints=CheckpointSettings(str(tmp_path), "job", seconds=5.0),
    )
    for inputs in session.batches(DataLoader(torch.randn(80, 100), batch_size=4)):
        loss = model(inputs).sum()
        loss.backward()
        session.step(loss)
        clock.seconds += 4.0
    assert session.steps == 20
    assert saved(store) == []
    said = capsys.readouterr().err
    assert said.count("is still being written after") == 1
    assert "(0 of 0 MB): the next one waits, and training goes on" in said
    store.may_go_on.set()
    session.checkpoint()
    session.close()
    assert [each.step for each in saved(store)] == [20, 3]
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    progress = [each for each in events if each.get("event") == "checkpoint_progress"]
    assert {each["step"] for each in progress} == {3}
    assert progress[0]["total_bytes"] > 4 * 100 * 100
    assert len(progress) == 5, "one each 12 s, which is the first step beyond 10 s"
