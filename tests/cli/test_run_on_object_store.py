"""A run goes on from checkpoints in S3, and its secret is in none of its files; a run that may not write ends early."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from kit.file_servers import BUCKET, Server, s3_server
from kit.run_processes import of_run

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent / "stopping_training.py"


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def job(s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a job's file, for which the trainers inherit what S3 needs."""
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)

    def job(where: str, **spec_of_restarts: int) -> Path:
        argv = [
            sys.executable,
            str(SCRIPT),
            str(tmp_path / "weights"),
            str(tmp_path / "mark"),
            str(int(signal.SIGKILL)),
        ]
        spec = {
            "workers": 2,
            "communication": {"policy": "Static", "plan": "0.1/all-gather"},
            "checkpoint": {"path": where, "steps": 4},
            "template": {"spec": {"containers": [{"name": "trainer", "image": "none", "command": argv}]}},
            **spec_of_restarts,
        }
        job = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "on-s3"}, "spec": spec}
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        return tmp_path / "job.yaml"

    return job


def files_with(secret: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_a_killed_rank_goes_on_from_s3_and_no_file_holds_the_secret(trimtab, job, s3, tmp_path) -> None:
    file = job(f"s3://{BUCKET}/on-s3")
    process = trimtab("run", str(file), "--out", str(tmp_path / "run"))
    arguments = set[str]()
    while process.poll() is None:
        for each in [psutil.Process(process.pid), *of_run(tmp_path / "run")]:
            with contextlib.suppress(psutil.NoSuchProcess):
                arguments.update(each.cmdline())
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert json.loads((tmp_path / "run" / "result.json").read_text())["restarts"] == 1
    logs = "".join(path.read_text() for path in (tmp_path / "run").rglob("*.log"))
    assert re.search(f"going on from the checkpoint of step \\d+ in s3://{BUCKET}/on-s3", logs)
    assert files_with(s3.secret, tmp_path) == []
    assert s3.secret not in output + errors + " ".join(arguments)


@pytest.mark.full
@pytest.mark.parametrize(
    ("where", "variables", "problem"),
    [
        (
            f"s3://{BUCKET}/on-s3",
            {"AWS_SECRET_ACCESS_KEY": "another-secret"},
            "cannot be written (The request signature",
        ),
        ("s3://no-such-bucket/on-s3", {}, "cannot be written (The specified bucket does not exist"),
    ],
)
def test_a_run_that_may_not_write_ends_before_its_first_step(
    trimtab, job, s3, tmp_path, monkeypatch, where: str, variables: dict[str, str], problem: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    process = trimtab("run", str(job(where, maxRestarts=0)), "--out", str(tmp_path / "run"))
    output, errors = process.communicate(timeout=240)
    assert process.returncode != 0
    assert f"spec.checkpoint.path: '{where}': {problem}" in output + errors
    assert not (tmp_path / "weights").exists()
    assert files_with(s3.secret, tmp_path) == []
