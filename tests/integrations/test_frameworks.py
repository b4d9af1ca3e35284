"""Frameworks that own the loop: with a line or a callback they train under dense what they do by their own DDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.full]
HERE = Path(__file__).parent
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
COMPRESSED = "0.01/all-gather"


def run(folder: Path, *command: object) -> None:
    argv = [sys.executable, "-m", *map(str, command)]
    ended = subprocess.run(
        argv, cwd=folder, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.pattern("Hugging Face's Trainer, Lightning", works="a callback; DDP's digits")
@pytest.mark.parametrize(("framework", "launcher"), [("transformers", "torchrun"), ("lightning", "trimtab run")])
def test_a_framework_trains_as_by_its_own_ddp(framework: str, launcher: str, tmp_path: Path) -> None:
    script = HERE / f"with_{framework}.py"
    if launcher == "torchrun":
        run(tmp_path, "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, tmp_path)
    else:
        (tmp_path / "job.yaml").write_text(
            "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: framework}\nspec:\n  workers: 2\n"
            f"  template: {{spec: {{containers: [{{name: trainer, command: [python, '{script}', '{tmp_path}']}}]}}}}\n"
        )
        run(tmp_path, "trimtab", "run", "job.yaml", "--out", "run")
    ranks = [said(tmp_path / f"rank-{rank}.txt") for rank in (0, 1)]
    assert len(ranks[0]["own", "loss"]) >= 8
    for rank in ranks:
        assert rank["dense", "loss"] == rank["own", "loss"]
        assert rank["dense", "weights"] == rank["own", "weights"]
        assert rank[COMPRESSED, "weights"] != rank["own", "weights"]
    for plan in ("dense", COMPRESSED, "adaptive"):
        assert ranks[0][plan, "weights"] == ranks[1][plan, "weights"]
        assert progress(ranks[0][plan, "loss"]) < 0.9
    if launcher == "torchrun":
        assert recorded(tmp_path / "0.01-all-gather") == 24 * [COMPRESSED]
    else:
        log = (tmp_path / "run" / "logs" / "rank-0.log").read_text()
        assert log.count("run_directory=") == log.count("is for other launchers; under `trimtab run`") == 3


def said(file: Path) -> dict[tuple[str, str], list[list[float]]]:
    """Of each plan the lines of each kind."""
    lines: dict[tuple[str, str], list[list[float]]] = {}
    for line in file.read_text().splitlines():
        plan, what, *figures = line.split()
        lines.setdefault((plan, what), []).append([float(each) for each in figures])
    return lines


def progress(losses: Sequence[Sequence[float]]) -> float:
    """The last quarter's loss over the first's."""
    part = len(losses) // 4
    return sum(each[0] for each in losses[-part:]) / sum(each[0] for each in losses[:part])


def recorded(run: Path) -> list[str]:
    """The plan of each step of a run that has succeeded."""
    assert json.loads((run / "result.json").read_text())["state"] == "succeeded"
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [each["step"] for each in steps] == list(range(24))
    return [each["plan"] for each in steps]


@pytest.mark.parametrize("framework", ["transformers", "lightning", "accelerate"])
def test_a_framework_that_resumes_goes_on_with_what_compression_held_back(framework: str, tmp_path: Path) -> None:
    script = HERE / f"resuming_{framework}.py"
    run(tmp_path, "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, tmp_path)
    for rank in range(2):
        whole, resumed = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert resumed == whole
