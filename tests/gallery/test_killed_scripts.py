"""A gallery script that is killed goes on from its job's checkpoints, and trains what it would have trained."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SCRIPT = Path(__file__).parent / "killed_script.py"
#: Lines that change for checkpoints; those that loop over `session.batches` change none.
LINES: dict[str, list[tuple[str, str]]] = {
    "mnist": [],
    "dcgan": [],
    "imagenet": [
        ("    trimtab.attach(model, optimizer)", "    session = trimtab.attach(model, optimizer)"),
        ("in range(args.epochs):", "in session.epochs(args.epochs):"),
    ],
    "nlp_example": [
        ("    trimtab.attach(model, optimizer)", "    session = trimtab.attach(model, optimizer)"),
        ("in range(args.num_epochs):", "in session.epochs(args.num_epochs):"),
    ],
    "nanogpt": [
        (
            "    trimtab.attach(model, optimizer, scaler=scaler)",
            "    session = trimtab.attach(model, optimizer, scaler=scaler)",
        ),
        ("in range(args.max_iters):", "in session.steps_until(args.max_iters):"),
    ],
}


def run(folder: Path, name: str, *, killed: bool) -> tuple[list[list[str]], dict[str, Any]]:
    folder.mkdir()
    if not killed:
        (folder / "mark").touch()
    command = [sys.executable, str(SCRIPT), str(folder), name, json.dumps(LINES[name])]
    spec = {
        "workers": 2,
        "communication": {"policy": "Static", "plan": "0.1/all-gather"},
        "checkpoint": {"path": str(folder / "checkpoints"), "steps": 4},
        "template": {"spec": {"containers": [{"name": "trainer", "image": "none", "command": command}]}},
    }
    job = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name.replace("_", "-")},
        "spec": spec,
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    argv = [sys.executable, "-m", "trimtab", "run", "job.yaml", "--out", "run"]
    ended = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    weights = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]
    return weights, json.loads((folder / "run" / "result.json").read_text())


@pytest.mark.parametrize(
    "name", ["mnist", *(pytest.param(name, marks=pytest.mark.full) for name in LINES if name != "mnist")]
)
def test_a_killed_script_goes_on_with_two_lines_at_most(name: str, tmp_path: Path) -> None:
    assert len(LINES[name]) <= 2
    killed, result = run(tmp_path / "killed", name, killed=True)
    assert result["restarts"] == 1
    assert killed[0] == killed[1]
    if LINES[name]:  # it draws its batches itself: which ones it has drawn is in no checkpoint
        lines = [json.loads(line) for line in (tmp_path / "killed/run/metrics.jsonl").read_text().splitlines()]
        steps = [line["step"] for line in lines if "event" not in line]
        assert 4 <= steps[0] <= steps[-1], "the last process has gone on"
        return
    whole, result = run(tmp_path / "whole", name, killed=False)
    assert result["restarts"] == 0
    assert killed == whole
