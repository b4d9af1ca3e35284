"""What the iterations of a schedule let pass through the lanes.

The step engine does the same (`trimtab.engine.exchange.dispatcher`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from trimtab.plan.timetable import Iteration

Start = Literal["at once", "backward begins", "gradient", "backward"]
"""When a buffer may be compressed.

It waits since an earlier iteration; as soon as there is a gradient; it is complete; backward has ended.
"""


class Transfer(NamedTuple):
    """One buffer's exchange in an iteration."""

    buffer: int
    start: Start = "gradient"
    link: int = 0
    is_deferred: bool = False
    """Whether it need not have arrived before the optimizer steps, but only where the next forward pass needs it."""


def transfers_of(iteration: Iteration, number: int = 0) -> tuple[Transfer, ...]:
    """Of iteration ``number``, from which its generations are counted: 0 where they are counted from itself."""
    made, consensus_send_index = [], iteration.consensus_send_index
    for index, send in enumerate(iteration.sends):
        start: Start = send.after if send.iteration >= number else "at once"
        if (
            index == consensus_send_index
        ):  # the vote is not sent before there is a gradient, nor before backward has ended
            if index < len(iteration.sends) - 1:
                start = "backward"
            elif start == "at once":
                start = "backward begins"
        made.append(
            Transfer(send.bucket, start, send.link, send.arrives == "forward" and index != consensus_send_index)
        )
    return tuple(made)
