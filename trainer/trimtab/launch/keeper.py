"""Kills a run's processes when its launcher is gone, however it went (``kill -9`` included).

Run as a script, with a pipe from the launcher as standard input: each line is ``+PGID`` (a process group was started)
or ``-PGID`` (it has been cleared away), or the absolute path of a directory. At the end of file the launcher is gone,
and every group left is killed, every directory left removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Read until the launcher closes the pipe or dies, then kill what is left."""
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
