"""Exit handlers that act only in the process that registered them: a forked child inherits them all."""

from __future__ import annotations

import os
from collections.abc import Callable


def only_in_this_process(act: Callable[[], None]) -> Callable[[], None]:
    """Wrap ``act`` so that it does nothing in a child that this process forks."""
    owner = os.getpid()

    def guarded() -> None:
        if os.getpid() == owner:
            act()

    return guarded
