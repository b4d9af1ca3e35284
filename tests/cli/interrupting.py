"""The `trimtab` command, interrupted at a named point: ``interrupting.py POINT ARGUMENTS...``.

A point is a module (Ctrl-C comes as it begins to be imported), or a function and which of its calls (``heed#2``; of
``fork_exec``, which is C, the moment after). The signal always comes where nothing can be raised: a destructor is such
a place, or an import that has an alternative. Exits with 99 where the command never came by the point.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

NEVER_REACHED = 99


class Point:
    """Sends the signal once, when it is reached."""

    def __init__(self, text: str) -> None:
        self.name, _, number = text.partition("#")
        self._calls_left = int(number or 1)
        self.was_reached = False

    def reach(self) -> None:
        self._calls_left -= 1
        if self._calls_left == 0:
            self.was_reached = True
            try:
                os.kill(os.getpid(), signal.SIGINT)
                os.getpid()  # the handler of a signal runs between two instructions
            except BaseException:
                pass

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """A finder's, of modules: finds nothing."""
        if name == self.name:
            self.reach()

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """An observer's, of functions."""
        called = frame.f_code.co_qualname if event == "call" else ""
        returned = argument.__name__ if event == "c_return" else ""
        if self.name in (called, returned):
            self.reach()


if __name__ == "__main__":
    point = Point(sys.argv.pop(1))
    sys.argv[0] = "trimtab"
    sys.meta_path.insert(0, point)  # type: ignore[arg-type]
    from trimtab.__main__ import main

    sys.setprofile(point.profile)
    code = main()
    sys.exit(code if point.was_reached else NEVER_REACHED)
