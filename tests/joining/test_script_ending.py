"""How a run ended is written down, whenever a launcher ends all ranks because one has failed."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kit.run_processes import wait_until
from trimtab.launch.environment.launchers import torchrun_job
from trimtab.run_files.layout import RunDirectory
from trimtab_api.errors import UserError

JOB = (
    "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: toy}\n"
    "spec: {workers: 2, template: {spec: {containers: [{name: trainer, command: [python]}]}}}\n"
)
KEEPS = """
import os, signal, sys
from pathlib import Path
from trimtab.launch.joining.script_ending import ScriptEnding
from trimtab.run_files.layout import RunDirectory
from trimtab_api.trainingjob import load_training_job

def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(100):
        pass  # Python runs its handlers between two of these

keeper = ScriptEnding(RunDirectory(Path("out")), load_training_job(Path("job.yaml")))
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
    (tmp_path / "job.yaml").write_text(JOB)
    code, state, message = COMES[when]
    ended = subprocess.run(
        [sys.executable, "-c", KEEPS + code], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["state"] == state
    assert result["message"].startswith(message)


#: What a forked child does, and the code that it ends with.
CHILDREN = {
    "closes what it inherited": "keeper.close(); os._exit(0)",
    "raises": "sys.excepthook(RuntimeError, RuntimeError('of the child'), None); keeper.close(); os._exit(0)",
    "is ended by SIGTERM": "terminate()",
}


@pytest.mark.parametrize("child", CHILDREN)
def test_the_end_of_a_forked_child_is_no_end_of_the_run(tmp_path: Path, child: str) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    code = (
        f"child = os.fork()\nif child == 0:\n    {CHILDREN[child]}\n_, status = os.waitpid(child, 0)\n"
        "print(os.WTERMSIG(status), os.path.exists('out/result.json'))\nkeeper.close()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", KEEPS + code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    signalled = signal.SIGTERM if child == "is ended by SIGTERM" else 0
    assert (ended.returncode, ended.stdout) == (0, f"{int(signalled)} False\n"), ended.stderr
    assert json.loads((tmp_path / "out" / "result.json").read_text())["state"] == "succeeded"


def test_a_child_that_outlives_the_run_holds_no_lock(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    reader, writer = os.pipe()
    with directory.held():
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            os._exit(0)
    with directory.held():
        os.write(writer, b"x")
    os.waitpid(child, 0)


def test_a_deleted_run_directory_makes_no_failure_of_a_good_end(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    code = "import shutil; shutil.rmtree('out'); keeper.close()"
    ended = subprocess.run(
        [sys.executable, "-c", KEEPS + code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0
    assert ended.stderr == "trimtab: the records in out are incomplete (No such file or directory); training goes on\n"


def test_a_further_attempt_of_torchruns_keeps_what_the_one_before_recorded(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    for attempt in range(3):
        assert directory.prepare_attempt("an agent") == attempt
        directory.metrics.write_text(f"of attempt {attempt}\n")
        directory.result.write_text("failed\n")
    assert [(directory.attempts / str(n) / "metrics.jsonl").read_text() for n in range(2)] == [
        "of attempt 0\n",
        "of attempt 1\n",
    ]
    assert directory.prepare_attempt("another agent") == 0
    assert not directory.attempts.exists()


def test_all_attempts_of_a_torchrun_agent_have_one_name() -> None:
    environ = {"TORCHELASTIC_RUN_ID": "none"}
    assert torchrun_job(environ) == torchrun_job(environ) != ""
    assert torchrun_job({}) == ""


def test_a_private_folder_goes_with_a_process_that_is_killed() -> None:
    code = (
        "import os, signal\nfrom trimtab.launch.processes.children import Children\n"
        "with Children(has_threads=True) as children:\n"
        "    print(children.temporary_directory('trimtab-'), flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    folder = Path(ended.stdout.strip())
    assert ended.returncode == -signal.SIGKILL
    wait_until(lambda: not folder.exists())


def test_a_pods_lock_names_the_pod(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    with directory.held("pod digits-0"), pytest.raises(UserError, match="is in use by pod digits-0; wait for it to"):
        with directory.held("pod digits-0"):
            pass


def test_a_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunDirectory(tmp_path).held():
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_of_many_attempts_the_last_are_kept(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    for attempt in range(30):
        assert directory.prepare_attempt("its job") == attempt
    kept = sorted(int(each.name) for each in directory.attempts.iterdir())
    assert kept == list(range(9, 29))
