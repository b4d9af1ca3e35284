"""Kills a run's processes when its launcher is gone, however it went (``kill -9`` included).

Run as a script, with a pipe from the launcher as standard input: each line is ``+PGID`` (a process group was started)
or ``-PGID`` (it has been cleared away). At the end of file the launcher is gone, and every group left is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read until the launcher closes the pipe or dies, then kill what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
