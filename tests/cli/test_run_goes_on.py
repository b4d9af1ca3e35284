"""A run whose rank is killed goes on from its last checkpoint, and trains what it would have trained."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import psutil
import pytest
import torch
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parent / "stopping_training.py"


@pytest.fixture
def run(trimtab, tmp_path):
    """Run the script, and return the final weights, the result and what was printed."""

    def run(name: str, stopped_by: signal.Signals, **checkpoint):
        folder = tmp_path / name
        folder.mkdir()
        mark, weights = folder / "mark", folder / "weights"
        if not checkpoint:
            mark.touch()  # nobody stops it
        argv = [sys.executable, str(SCRIPT), str(weights), str(mark), str(int(stopped_by))]
        trainer = {"name": "trainer", "image": "none", "command": argv}
        spec = {
            "workers": 2,
            "communication": {"policy": "Static", "plan": "0.1/all-gather"},
            "checkpoint": checkpoint or {"path": str(folder / "checkpoints")},
            "template": {"spec": {"containers": [trainer]}},
        }
        job = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        process = trimtab("run", str(folder / "job.yaml"), "--out", str(folder / "run"))
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        return torch.load(weights), json.loads((folder / "run" / "result.json").read_text()), output

    return run


def test_a_killed_rank_costs_no_step_that_was_kept_in_a_folder_or_in_memory(run, tmp_path):
    whole, result, _ = run("whole", signal.SIGKILL)
    assert result["restarts"] == 0
    killed, result, output = run("killed", signal.SIGKILL, steps=4, volumeClaim={"size": "1Gi"})
    assert result["restarts"] == 1
    assert "all ranks from the last checkpoint" in output
    assert all(map(torch.equal, whole, killed))
    kept = list((tmp_path / "killed/run/checkpoints").glob("step-*/manifest.json"))
    assert kept, "a volume claim is a folder of the run directory, on one machine"

    lost, result, _ = run("lost", signal.SIGKILL, inMemory="neighbour", inMemorySteps=4)  # with its worker's keeper
    assert result["restarts"] == 1
    assert all(map(torch.equal, whole, lost))
    assert "in the memory of the workers' hosts" in (tmp_path / "lost/run/logs/rank-0.log").read_text()
    assert sorted(path.name for path in (tmp_path / "lost").iterdir()) == ["job.yaml", "mark", "run", "weights"]
    socket = (tmp_path / "lost/run/attempts/0/logs/keeper-0.log").read_text().split("unix:")[1].strip()
    assert not [process for process in psutil.process_iter() if socket in " ".join(process.cmdline())]
    assert not Path(socket).parent.exists()


@pytest.mark.full
def test_a_rank_that_is_told_to_end_keeps_its_last_step(run, tmp_path):
    whole, _, _ = run("whole", signal.SIGTERM)
    told, result, _ = run("told", signal.SIGTERM, onTermination=True, path=str(tmp_path / "checkpoints"))
    assert result["restarts"] == 1
    assert all(map(torch.equal, whole, told))
