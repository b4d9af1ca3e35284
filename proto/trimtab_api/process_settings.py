"""What a command of ours must not inherit from whoever started it."""

from __future__ import annotations

import io
import signal
import sys


def settle_process() -> None:
    """Undo what would make a command fail by the way it was started; call it first of all.

    Daemons, cron and some schedulers start programs with SIGCHLD ignored, and then no exit code of a child is known.
    Where the locale is ASCII or Latin-1, a character that it lacks is written as an escape instead of ending the run.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
