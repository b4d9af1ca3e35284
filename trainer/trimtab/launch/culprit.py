"""Of several processes that failed at the same time, the one whose failure is told: the cause rather than a victim."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from trimtab.launch.children import Exit

#: What a rank ends with that only lost another: the last line of its traceback, whose notes may follow.
_LOST_ANOTHER = re.compile(r"(?:\w+\.)*CommunicationError\b")


def culprit(failed: Sequence[Exit], last_lines: Callable[[str], Sequence[str]]) -> Exit:
    """One that a signal killed before one that ended by itself, then by number; one that only lost another comes last.

    ``last_lines``: of what a process printed, by its name.
    """
    return min(failed, key=lambda each: (_is_victim(last_lines(each.name)), each.code >= 0, *_place(each.name)))


def _is_victim(lines: Sequence[str]) -> bool:
    return any(_LOST_ANOTHER.match(line) for line in lines)


def _place(name: str) -> tuple[str, int]:
    """``rank-10`` or ``rank 10`` as what it is and its number."""
    kind, number = re.split("[- ]", name)
    return kind, int(number)
