"""Finds a rank that keeps the others waiting, by when ranks came to the exchange of each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

#: A straggler comes last in at least this share of the steps ...
_SHARE_OF_STEPS = 0.8
#: ... and later than the middle rank by at least this share of a step, in the middle one of these.
_SHARE_OF_STEP = 0.1
#: Fewer steps tell nothing.
_FEWEST_STEPS = 10


class Arrival(Protocol):
    """The rank that came last in one step, and how late it was; None where it is not known."""

    @property
    def step_seconds(self) -> float:
        """Duration of the step."""
        ...

    @property
    def last_rank(self) -> int | None:
        """The rank that came last."""
        ...

    @property
    def late_seconds(self) -> float | None:
        """Seconds from the middle rank's arrival to the last's."""
        ...


@dataclass(frozen=True)
class Straggler:
    """A rank that the others wait for."""

    rank: int
    seconds: float
    """Seconds that it comes after the middle rank, in the median of its steps."""
    share: float
    """Share of the steps in which it comes last."""

    def __str__(self) -> str:
        return (
            f"rank {self.rank} comes {self.seconds:.2g} s after the others in {self.share:.0%} of the steps: they wait"
            " for its computing, and not for the network"
        )


def straggler_of(steps: Sequence[Arrival]) -> Straggler | None:
    """Return the rank that keeps others waiting in these steps, if one does."""
    known = [step for step in steps if step.last_rank is not None and step.late_seconds is not None]
    if len(known) < _FEWEST_STEPS:
        return None
    rank, count = Counter(step.last_rank for step in known).most_common(1)[0]
    late = median(step.late_seconds or 0.0 for step in known if step.last_rank == rank)
    is_material = late >= _SHARE_OF_STEP * median(step.step_seconds for step in known)
    if rank is None or count < _SHARE_OF_STEPS * len(known) or not is_material:
        return None
    return Straggler(rank, late, count / len(known))
