"""Exit handlers that act only in the process that registered them: a forked child inherits them all."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable


def only_in_this_process(act: Callable[[], None]) -> Callable[[], None]:
    """Wrap ``act`` so that it does nothing in a child that this process forks."""
    owner = os.getpid()

    def guarded() -> None:
        if os.getpid() == owner:
            act()

    return guarded


def at_exit(act: Callable[[], None]) -> Callable[[], None]:
    """Call ``act`` when this process ends by itself; return a function that takes that back.

    It is called while libraries can still start threads, which clients of object stores do for each new connection.
    `atexit` calls too late for that, and is what is left where Python has no such hook.
    """
    waiting = [only_in_this_process(act)]

    def call() -> None:
        while waiting:
            waiting.pop()()

    register = getattr(threading, "_register_atexit", atexit.register)
    register(call)
    return waiting.clear
