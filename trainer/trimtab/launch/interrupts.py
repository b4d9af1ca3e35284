"""Ctrl-C and SIGTERM as one exception that unwinds the launcher, so that every context cleans up after itself."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Exit code of a command that was interrupted.
EXIT_CODE = 130


class Interrupted(BaseException):
    """The user, or the system, asked to stop. Not an Exception: nothing may swallow it."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Within, the first SIGINT, SIGTERM or SIGHUP raises `Interrupted`; later ones cannot disturb the cleaning up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in handled:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted

    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
