"""Kills what is left of a run when its launcher is gone, whatever ended the launcher (``kill -9`` included).

It runs as a script; its standard input is a pipe from the launcher. Each line is ``+PGID`` (a process group was
started), ``-PGID`` (that group has been killed) or the absolute path of a directory. At the end of file the launcher is
gone: the reaper then kills the groups that are left, and removes the directories.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Read until the launcher closes the pipe or dies; then kill the groups that are left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    directories: list[str] = []
    for line in sys.stdin:
        if line[0] == "/":
            directories.append(line.rstrip("\n"))
        elif line[0] == "+":
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
