"""All ranks refuse a place for checkpoints that one cannot write, that is not one, or that holds another job's."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any

import pytest
from kit.rank_pool import RankError, RankPool
from torch import nn
from torch.optim import SGD
from trimtab.checkpoint import store_probe
from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.checkpoint.store import LocalStore
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
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
