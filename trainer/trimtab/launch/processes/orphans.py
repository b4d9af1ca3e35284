"""In a container the launcher may be process 1, to which the kernel gives every process whose parent has ended."""

from __future__ import annotations

import contextlib
import os

import psutil


def reap_orphans() -> None:
    """Wait for children that have ended and that this process has not started itself: else they stay as zombies.

    What this process starts is in its session, or leads one of its own.
    """
    with contextlib.suppress(ChildProcessError):
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    for child in psutil.Process().children():
        with contextlib.suppress(ChildProcessError, ProcessLookupError, psutil.Error):
            if child.status() == psutil.STATUS_ZOMBIE and os.getsid(child.pid) not in (os.getsid(0), child.pid):
                os.waitpid(child.pid, os.WNOHANG)
