"""Finds the root failure among several processes that failed: the others only lost the one that failed first.

A rank that fails closes its connections, and every rank that waits for it then fails too. The user must be told of the
first, whichever of them the launcher happens to see first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from trimtab.launch.processes.children import Children, Exit, is_rank, kind_and_number

#: Seconds that the root cause may take to end after the ranks that lost it, which it told before it ends.
ROOT_CAUSE_SECONDS = 2.0

#: The last line of the traceback of a rank that only lost another, or was left alone in a round; notes may follow.
#: torch writes the rank before it.
_LOST_ANOTHER = re.compile(r"(?:\[rank\d+\]: )?(?:\w+\.)*(?:CommunicationError|PlanMismatchError)\b")

LastLines = Callable[[str], Sequence[str]]
"""The last lines that a process printed, by its name."""


def await_root_cause(
    failed: Sequence[Exit],
    last_lines: LastLines,
    children: Children,
    pause: Callable[[], object],
    has_failed: Callable[[Exit], bool],
) -> list[Exit]:
    """Return ``failed``, and what fails within `ROOT_CAUSE_SECONDS` more, as long as each only lost another.

    ``pause`` waits between two looks at the children.
    """
    found, newly, deadline = list(failed), list(failed), time.monotonic() + ROOT_CAUSE_SECONDS
    while all(_lost_another(last_lines(ended.name)) for ended in newly) and time.monotonic() < deadline:
        if not any(map(is_rank, children.running)):
            break
        pause()
        newly = [ended for ended in children.collect() if has_failed(ended)]
        found += newly
    return found


def root_cause(failed: Sequence[Exit], last_lines: LastLines) -> Exit:
    """Choose the process to name: not one that only lost another, then one that a signal killed, then the lowest."""
    return min(
        failed, key=lambda ended: (_lost_another(last_lines(ended.name)), ended.code >= 0, *kind_and_number(ended.name))
    )


def _lost_another(lines: Sequence[str]) -> bool:
    return any(_LOST_ANOTHER.match(line) for line in lines)
