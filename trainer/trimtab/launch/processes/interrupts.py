"""Ctrl-C, SIGTERM and SIGHUP: whenever one comes, a command of `trimtab` ends with exit code 130.

A command that has started nothing yet ends at once (`end_when_told`). It does not raise an exception: an import in
progress may swallow the exception or turn it into another.

Inside `interruptible`, where a command holds processes, namespaces or files of a run, the handler only sets a flag.
`heed` raises `Interrupted`; it is called only where everything that was started is on record, and so will be ended. An
exception raised by the handler itself could come between a child's fork and its entry in the list of children.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

#: Exit code of a command that was interrupted.
EXIT_CODE = 130

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The user, or the system, asked to stop. Not an Exception: nothing may swallow it."""


class _Note:
    """Flags: a signal came inside `interruptible`; `Interrupted` was raised; Ctrl-C came again."""

    has_come = False
    has_been_raised = False
    is_urgent = False


#: The note of the `interruptible` that is entered; None outside.
_note: _Note | None = None


def end_when_told() -> None:
    """Let the first signal outside `interruptible` end the process with `EXIT_CODE` and one line."""
    for number in _heeded():
        signal.signal(number, _end)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a signal set a flag within, for which `heed` raises `Interrupted`; leaving raises it if no `heed` did.

    It is raised once, so that later signals cannot disturb the cleanup.
    """
    global _note
    note = _Note()

    def take_note(number: int, frame: FrameType | None) -> None:
        note.is_urgent = note.has_been_raised and number == signal.SIGINT
        note.has_come = True

    before_note, _note = _note, note
    before = {number: signal.signal(number, take_note) for number in _heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _note = before_note
    if note.has_come and not note.has_been_raised:
        raise Interrupted


def has_come() -> bool:
    """Return whether a signal came that `heed` would raise for."""
    return _note is not None and _note.has_come and not _note.has_been_raised


def is_urgent() -> bool:
    """Return whether Ctrl-C came again after `Interrupted` was raised: the cleanup then kills instead of waiting."""
    return _note is not None and _note.is_urgent


def heed() -> None:
    """Raise `Interrupted` if a signal came; only once, so that the cleanup may call functions that call this."""
    if _note is not None and has_come():
        _note.has_been_raised = True
        raise Interrupted


def pause(seconds: float) -> None:
    """Sleep for a part of a second, then `heed`."""
    time.sleep(seconds)
    heed()


def _heeded() -> list[signal.Signals]:
    """Return all three signals, without SIGHUP where the command was started to ignore it (``nohup``)."""
    return [number for number in _SIGNALS if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN]


def _end(number: int, frame: FrameType | None) -> None:
    with suppress(Exception):  # print what is still buffered; the reader may be gone
        sys.stdout.flush()
    with suppress(OSError):
        os.write(2, b"trimtab: interrupted\n")
    os._exit(EXIT_CODE)
