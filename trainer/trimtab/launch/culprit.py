"""Of several processes that failed together, the one whose failure is told: the cause rather than a victim."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from trimtab.launch.children import Children, Exit

#: Seconds that the cause may take to end after its victims, whom it told that it does.
CAUSE_WITHIN = 2.0

#: What a rank ends with that only lost another: the last line of its traceback, whose notes may follow. torch writes
#: the rank before each line.
_LOST_ANOTHER = re.compile(r"(?:\[rank\d+\]: )?(?:\w+\.)*CommunicationError\b")

LastLines = Callable[[str], Sequence[str]]
"""Of what a process printed, by its name."""


def with_cause(
    failed: Sequence[Exit],
    last_lines: LastLines,
    children: Children,
    pause: Callable[[], object],
    has_failed: Callable[[Exit], bool],
) -> list[Exit]:
    """Those that failed, and where all of them only lost another, those that fail within `CAUSE_WITHIN` seconds, too.

    ``pause``: between two looks at the children.
    """
    told, newly, deadline = list(failed), list(failed), time.monotonic() + CAUSE_WITHIN
    while all(_is_victim(last_lines(each.name)) for each in newly) and time.monotonic() < deadline:
        if not any(name.startswith("rank") for name in children.running):
            break
        pause()
        newly = [each for each in children.collect() if has_failed(each)]
        told += newly
    return told


def culprit(failed: Sequence[Exit], last_lines: LastLines) -> Exit:
    """One that a signal killed before one that ended by itself, then by number; those that lost another come last."""
    return min(failed, key=lambda each: (_is_victim(last_lines(each.name)), each.code >= 0, *_place(each.name)))


def _is_victim(lines: Sequence[str]) -> bool:
    return any(_LOST_ANOTHER.match(line) for line in lines)


def _place(name: str) -> tuple[str, int]:
    """``rank-10`` or ``rank 10`` as what it is and its number."""
    kind, number = re.split("[- ]", name)
    return kind, int(number)
