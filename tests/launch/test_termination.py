"""A rank that is told to end may save first: what it needs for that ends after it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from kit.run_processes import wait_until
from trimtab.launch.processes.children import Children
from trimtab_api.trainingjob import load_training_job

#: Saves on SIGTERM, if the worker that it forked is alive and its output is still read.
SAVES = """
import os, signal, sys
reader, writer = os.pipe()
answers, answer = os.pipe()
worker = os.fork()
if worker == 0:
    os.read(reader, 1)
    os.write(answer, b"x")
    signal.pause()
def save(*_):
    os.write(writer, b"x")
    assert os.read(answers, 1) == b"x"
    print("saving", flush=True)
    open("saved", "w").close()
    sys.exit(0)
os.close(reader), os.close(answer)
signal.signal(signal.SIGTERM, save)
open("ready", "w").close()
signal.pause()
"""


#: Bytes that are no UTF-8, as the kernel leaves of a name that it cuts off after 15 bytes.
CUT_NAME = "entraînement-évé".encode()[:15]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "saves.py"
    path.write_text(SAVES)
    return path


@pytest.mark.parametrize("command", ["exec {python} {script}", "{python} {script} | cat; true"], ids=["alone", "piped"])
def test_a_rank_saves_before_its_workers_and_its_shell_end(script: Path, tmp_path: Path, command: str) -> None:
    argv = ["sh", "-c", command.format(python=f"{sys.executable} -S", script=script)]
    with (tmp_path / "log").open("wb") as log, Children(grace=60.0) as children:
        children.start("rank-0", argv, os.environ, log.fileno(), tmp_path)
        wait_until((tmp_path / "ready").exists)
        children.stop()
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "log").read_text() == "saving\n"


def test_a_rank_of_any_name_saves(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text(f"import ctypes\nctypes.CDLL(None).prctl(15, {CUT_NAME!r})\n{SAVES}")
    with (tmp_path / "log").open("wb") as log, Children(grace=60.0) as children:
        children.start("rank-0", [sys.executable, "-S", "named.py"], os.environ, log.fileno(), tmp_path)
        wait_until((tmp_path / "ready").exists)
        children.stop()
    assert (tmp_path / "saved").exists()


def test_who_does_not_handle_the_signal_ends_at_once(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, Children(grace=600.0) as children:
        children.start("rank-0", ["sh", "-c", "touch ready; sleep 600 | sleep 600"], os.environ, log.fileno(), tmp_path)
        wait_until((tmp_path / "ready").exists)
        children.stop()
    assert children.running == set()


@pytest.mark.parametrize(
    ("field", "checkpoint", "seconds"),
    [
        ("", "", 30.0),
        ("terminationGracePeriodSeconds: 120, ", "", 120.0),
        ("", "checkpoint: {path: /c}, ", 60.0),
        ("", "checkpoint: {path: /c, onTermination: false}, ", 30.0),
        ("terminationGracePeriodSeconds: 10, ", "checkpoint: {path: /c}, ", 10.0),
    ],
)
def test_the_grace_is_that_of_the_template_or_suffices_for_a_checkpoint(
    tmp_path: Path, field: str, checkpoint: str, seconds: float
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: toy}\n"
        f"spec: {{workers: 2, {checkpoint}\n"
        f"  template: {{spec: {{{field}containers: [{{name: trainer, command: [python]}}]}}}}}}\n"
    )
    assert load_training_job(file).spec.termination_grace_seconds == seconds
