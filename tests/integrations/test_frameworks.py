"""Frameworks that own the loop: with a line or a callback they train under dense what they do by their own DDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.mark.parametrize("framework", ["transformers", "lightning"])
def test_a_framework_trains_as_by_its_own_ddp(framework: str, tmp_path: Path) -> None:
    script = HERE / f"with_{framework}.py"
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line.split(maxsplit=1) for line in ended.stdout.splitlines() if line]
    own, dense, sparse = (
        [figures for plan, figures in lines if plan == name] for name in ("None", "dense", "0.05/all-gather")
    )
    assert len(own) >= 8
    assert dense == own
    assert len(sparse) == len(own)
    assert sparse != own
    run = tmp_path / "runs" / script.stem.replace("_", "-")
    assert json.loads((run / "result.json").read_text())["state"] == "succeeded"
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [each["step"] for each in steps] == list(range(8))
    assert {each["plan"] for each in steps} == {"0.05/all-gather"}
