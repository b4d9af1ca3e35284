"""A job that runs the toy training script, and the `trimtab` command as a user starts it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TOY = Path(__file__).parent / "toy_training.py"


@pytest.fixture
def toy_job(tmp_path, monkeypatch) -> Callable[..., Path]:
    """Writes a TrainingJob of the toy script with the given arguments; returns its path."""
    monkeypatch.setenv("TRIMTAB_PRELOAD", "0")  # the script imports no torch

    def write(*arguments: str, workers: int = 3, extra: str = "") -> Path:
        words = ", ".join(f"'{word}'" for word in arguments)
        path = tmp_path / "job.yaml"
        path.write_text(
            "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: toy}\n"
            f"spec:\n  workers: {workers}\n  target: {{metric: accuracy, value: 0.97}}\n  {extra}\n"
            "  template: {spec: {containers: [{name: trainer, command: [python, "
            f"'{TOY}'], args: [{words}], env: [{{name: GREETING, value: hello}}]}}]}}}}\n"
        )
        return path

    return write


@pytest.fixture
def trimtab(tmp_path):
    """Starts the command in a process of its own; whatever still runs at the end of the test is killed."""
    started = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "trimtab", *map(str, arguments)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=30)
