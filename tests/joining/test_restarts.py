"""A job with checkpoints goes on where other launchers start its ranks again: torchrun, Slurm's requeue, the user."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kit.run_processes import wait_until
from trimtab.launch.environment.ports import free_ports

SCRIPT = Path(__file__).parent.parent / "cli/stopping_training.py"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1")
pytestmark = pytest.mark.slow


class Trial:
    """One folder, one job: its script's weights and what its ranks print."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.weights, self.mark = folder, folder / "weights", folder / "mark"
        job = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "goes-on"},
            "spec": {
                "workers": 1,
                "communication": {"policy": "Static", "plan": "0.1/all-gather"},
                "checkpoint": {"path": str(folder / "checkpoints"), "steps": 4},
                "template": {"spec": {"containers": [{"name": "trainer", "command": ["python", "x.py"]}]}},
            },
        }
        folder.mkdir()
        (folder / "job.json").write_text(json.dumps(job))

    def start(self, launcher: tuple[str, ...], stopped_by: int, **variables: str) -> subprocess.Popen[str]:
        """Start the script, which ends one rank by the signal ``stopped_by``; 0: nobody."""
        if not stopped_by:
            self.mark.touch()
        argv = [*launcher, str(SCRIPT), str(self.weights), str(self.mark), str(stopped_by)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRIMTAB_JOB": str(self.folder / "job.json"), **variables}
        return subprocess.Popen(
            argv, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def final_weights(self) -> list[torch.Tensor]:
        """What rank 0 has written at the end."""
        return torch.load(self.weights)


def outputs(processes: list[subprocess.Popen[str]]) -> list[str]:
    try:
        return [each.communicate(timeout=240)[0] for each in processes]
    finally:
        for each in processes:
            each.kill()


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, first, second))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> list[torch.Tensor]:
    """The weights of two ranks that nobody stops."""
    trial = Trial(tmp_path_factory.mktemp("restarts") / "whole")
    outputs([trial.start(TORCHRUN, 0)])
    return trial.final_weights()


@pytest.mark.parametrize("sent", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_torchrun_restarts_from_the_last_checkpoint(sent, whole, tmp_path):
    stopped = Trial(tmp_path / "stopped")
    process = stopped.start(TORCHRUN, sent)
    (output,) = outputs([process])
    assert process.returncode == 0, output
    assert "going on from the checkpoint of step" in output
    assert same(whole, stopped.final_weights())


def srun(trial: Trial, port: int, stopped_by: int, restarts: int) -> list[subprocess.Popen[str]]:
    """Start two tasks with the variables that srun sets."""
    common = {
        "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "localhost", "SLURM_NODEID": "0", "SLURM_RESTART_COUNT": str(restarts),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    python = (sys.executable,)
    return [
        trial.start(python, stopped_by, **common, SLURM_PROCID=str(task), SLURM_LOCALID=str(task)) for task in range(2)
    ]


def test_a_job_that_slurm_requeues_goes_on(whole, tmp_path):
    requeued = Trial(tmp_path / "requeued")
    first = srun(requeued, free_ports(1)[0], signal.SIGTERM, 0)
    ended = outputs(first)  # one task was told to end: the others end with it, after one more checkpoint
    assert all(each.returncode for each in first), ended
    assert not requeued.weights.exists()
    second = srun(requeued, free_ports(1)[0], signal.SIGTERM, 1)
    ended = outputs(second)
    assert [each.returncode for each in second] == [0, 0], ended
    assert "going on from the checkpoint of step 12 " in ended[0]
    assert same(whole, requeued.final_weights())


def test_one_process_without_a_launcher_goes_on(tmp_path):
    whole, stopped = Trial(tmp_path / "whole"), Trial(tmp_path / "stopped")
    outputs([whole.start((sys.executable,), 0)])
    process = stopped.start((sys.executable,), 0)
    wait_until(lambda: bool(list((stopped.folder / "checkpoints").glob("*/manifest.json"))), 60)
    process.kill()
    outputs([process])
    stopped.weights.unlink(missing_ok=True)
    process = stopped.start((sys.executable,), 0)
    (output,) = outputs([process])
    assert process.returncode == 0, output
    assert "going on from the checkpoint of step" in output
    assert same(whole.final_weights(), stopped.final_weights())
