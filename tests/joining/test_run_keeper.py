"""How a run ended is written down, whenever a launcher ends all ranks because one has failed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

KEEPS = """
import os, signal, sys
from pathlib import Path
from trimtab.joining.run_keeper import RunKeeper
from trimtab.records.run_directory import RunDirectory
from trimtab_api.trainingjob import load_training_job

def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(100):
        pass  # Python runs its handlers between two of these

keeper = RunKeeper(RunDirectory(Path("out")))
keeper.begin(load_training_job(Path("job.yaml")))
write = RunDirectory.write_result
"""
#: When SIGTERM comes, and what is written then.
COMES = {
    "while training": ("terminate()", "interrupted", "stopped by SIGTERM"),
    "while it is written": (
        "RunDirectory.write_result = lambda self, result: (terminate(), write(self, result)); keeper.close()",
        "succeeded",
        "",
    ),
    "after rank 0 has failed too": (
        "sys.excepthook(RuntimeError, RuntimeError('rank 1 is gone'), None); terminate()",
        "failed",
        "rank 0 ended with RuntimeError: rank 1 is gone",
    ),
}


@pytest.mark.parametrize("when", COMES)
def test_a_sigterm_loses_nothing_of_how_the_run_ended_and_is_died_of(tmp_path: Path, when: str) -> None:
    """One that came once SIGTERM's handler was given back, and before the writing, left no result."""
    (tmp_path / "job.yaml").write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: toy}\n"
        "spec: {workers: 2, template: {spec: {containers: [{name: trainer, command: [python]}]}}}\n"
    )
    code, state, message = COMES[when]
    ended = subprocess.run(
        [sys.executable, "-c", KEEPS + code], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["state"] == state
    assert result["message"].startswith(message)
