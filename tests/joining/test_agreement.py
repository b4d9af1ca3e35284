"""What one rank alone cannot do every rank is told, before anything is written or started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import trimtab
from kit.rank_pool import RankPool
from trimtab_api.errors import UserError

JOB = (
    "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: told}\nspec:\n  workers: 5\n"
    "  template: {spec: {containers: [{name: trainer, command: [python, COMMAND]}]}}\n"
)


def attaching(rank: int, size: int, folder: Path, of_each: list[dict[str, Any]]) -> str:
    """What a rank is told that attaches with arguments of its own."""
    os.chdir(folder)
    model = torch.nn.Linear(2, 1)
    try:
        trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), **of_each[rank]).close()
    except UserError as error:
        return str(error)
    return ""


def told(pool: RankPool, folder: Path, *of_each: dict[str, Any]) -> list[str]:
    return pool.run_in_process_group(len(of_each), attaching, folder, list(of_each))


def test_ranks_that_read_different_jobs_are_told_the_field(rank_pool: RankPool, tmp_path: Path) -> None:
    one, other = told(rank_pool, tmp_path, {"plan": "dense"}, {"plan": "0.01/all-gather"})
    assert one == other
    assert one.startswith("job: rank 1 has read another job than rank 0 (spec.communication.plan: ")
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_one_rank_cannot_read_is_named_on_all(rank_pool: RankPool, tmp_path: Path) -> None:
    first, second = told(rank_pool, tmp_path, {"plan": "dense"}, {"plan": "dense", "job": "missing.yaml"})
    assert first == "job: rank 1 cannot join: missing.yaml: cannot be read (No such file or directory); check the path"
    assert second == "missing.yaml: cannot be read (No such file or directory); check the path"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trouble", ["file", "used"])
def test_a_directory_that_rank_0_cannot_keep_is_named_on_all(rank_pool: RankPool, tmp_path: Path, trouble: str) -> None:
    if trouble == "file":
        (tmp_path / "out").touch()
        first, second = told(rank_pool, tmp_path, *[{"plan": "dense", "run_directory": "out"}] * 2)
    else:
        from trimtab.run_files.layout import RunDirectory

        with RunDirectory(tmp_path / "out").held():
            first, second = told(rank_pool, tmp_path, *[{"plan": "dense", "run_directory": "out"}] * 2)
    assert first.startswith(f"run_directory: '{tmp_path / 'out'}': ")
    assert second == f"run_directory: rank 0 cannot keep the run: {first}"


def test_commands_that_are_written_in_another_way_are_the_same_job(rank_pool: RankPool, tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / f"{name}.yaml").write_text(JOB.replace("COMMAND", name))
    for _ in range(2):  # a process may attach again, once its session is closed
        assert told(rank_pool, tmp_path, {"job": "a.py.yaml"}, {"job": "b.py.yaml"}) == ["", ""]
    assert '"workers": 1' in (tmp_path / "runs/told/job.json").read_text()
