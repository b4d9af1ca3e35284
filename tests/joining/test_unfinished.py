"""A rank that has not come to its end leaves a mark, whatever exit code its command has."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys
from pathlib import Path
from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab.launch.joining.rank_markers import mark_unfinished
launch = LaunchEnvironment(1, 2, 0, 1, "127.0.0.1", 1, "lo", Path("job"), Path("run"), "localhost:1", 0, "")
close = mark_unfinished(launch)
assert Path("run/unfinished/rank-1").exists()
"""
#: How a script goes on, its exit code, and whether it has come to its end.
ENDS = {
    "returns": ("", 0, True),
    "exits": ("sys.exit(0)", 0, True),
    "raises": ("raise RuntimeError", 1, False),
    "raises after its session was closed": ("close(); raise RuntimeError", 1, False),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, False),
    "closes its session and leaves": ("close(); os._exit(0)", 0, True),
    "has a child that exits": (
        "child = os.fork()\nif child == 0: sys.exit(0)\nos.waitpid(child, 0)\nos.kill(os.getpid(), signal.SIGKILL)",
        -signal.SIGKILL,
        False,
    ),
    "has a child that raises": (
        "child = os.fork()\nif child == 0: raise RuntimeError\nos.waitpid(child, 0)",
        0,
        True,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_mark_stays_unless_the_script_comes_to_its_end(tmp_path: Path, end: str) -> None:
    code, status, has_finished = ENDS[end]
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT + code], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == status, ended.stderr
    assert (tmp_path / "run/unfinished/rank-1").exists() != has_finished
