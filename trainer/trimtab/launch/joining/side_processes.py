"""The processes beside a trainer that no launcher of ours has started: its host's monitor, the server of its status."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from trimtab.launch.processes import reaper
from trimtab.run_files.best_effort import best_effort

#: The kernel ends the process when the trainer ends, whatever ended it (PR_SET_PDEATHSIG). Not every image has setpriv.
_DIES_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
_WITH_PARENT = (sys.executable, "-I", "-S", "-c", _DIES_WITH_PARENT)
#: Starts its arguments again whenever they end, after a pause that doubles up to half a minute.
_RESTARTING = f"""
pause=1
while :; do
    {shlex.join(_WITH_PARENT)} "$@"
    echo "trimtab: the monitor ended with status $?; it is started again in $pause s"
    {shlex.join(_WITH_PARENT)} sleep "$pause"
    pause=$((pause < 16 ? pause * 2 : 30))
done
"""
#: Seconds from SIGTERM to SIGKILL.
_GRACE_SECONDS = 5.0


def restarting(argv: Sequence[str]) -> list[str]:
    """The command that runs ``argv`` again whenever it ends; both end with the process that starts it."""
    return ["sh", "-c", _RESTARTING, "sh", *argv]


class SideProcesses:
    """Processes that end with this one at the latest. `start` is called by the main thread, which lives that long."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folders: list[Path] = []
        self._reaper: subprocess.Popen[bytes] | None = None
        """Removes the folders, which hold private keys, when this process has ended in whatever way."""

    def start(self, argv: Sequence[str], log: Path, environment: Mapping[str, str] = os.environ) -> None:
        """Start a process that prints to the end of ``log``, or nowhere where that cannot be written."""
        with _end_of(log) as output:
            process = subprocess.Popen(
                [*_WITH_PARENT, *argv],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the trainer, which then ends this
            )
        self._processes.append(process)

    def private_folder(self) -> Path:
        """An empty folder that only this user may read, removed by `close`, or when this process is killed."""
        if self._reaper is None:
            self._reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", reaper.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        folder = Path(tempfile.mkdtemp(prefix="trimtab-"))
        self._folders.append(folder)
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(f"{folder}\n".encode())
        self._reaper.stdin.flush()
        return folder

    def close(self) -> None:
        """End every process, and remove the folders."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        self._folders.clear()
        if self._reaper is not None:
            self._reaper.communicate()
            self._reaper = None


def _end_of(log: Path) -> IO[bytes]:
    with best_effort(log.parent):
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab")
    return open(os.devnull, "ab")
