"""Ends a job that drops most of its steps: it would go on to its last step, train next to nothing, and succeed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from trimtab_api.errors import UserError

#: Steps that are looked at, and the fewest by which a job is judged.
_NUM_LOOKED_AT, _FEWEST = 50, 10
#: Names of parameters that are told of one rank.
_NUM_NAMES = 3
#: The same where ranks tell each other of them.
_NUM_LISTED = 5


def culprits(names_by_rank: list[list[str]]) -> str:
    """Name the ranks whose gradients were not finite, and their parameters.

    Args:
        names_by_rank: Names of the parameters of each rank, in rank order; empty where all were finite.
    """
    return "; ".join(
        f"rank {rank}: {', '.join(names[:_NUM_NAMES])}{' and others' if len(names) > _NUM_NAMES else ''}"
        for rank, names in enumerate(names_by_rank)
        if names
    )


class DropLimit:
    """Judges a job by its last steps."""

    def __init__(self) -> None:
        self._dropped: deque[bool] = deque(maxlen=_NUM_LOOKED_AT)
        self._by = ""

    def add(self, *, dropped: bool, by: str, is_scaling: bool) -> None:
        """Count a training step.

        Args:
            dropped: Whether the step was left out.
            by: The ranks and parameters that it was left out for.
            is_scaling: Whether a GradScaler looks for its scale, and so drops steps on purpose.

        Raises:
            UserError: Most of the last steps were dropped.
        """
        self._dropped.append(dropped and not is_scaling)
        self._by = by or self._by
        num, of = sum(self._dropped), len(self._dropped)
        if dropped and of >= _FEWEST and 2 * num > of:
            raise UserError(
                f"{num} of the last {of} steps were dropped, since a gradient was not finite ({self._by}); lower the"
                " learning rate, clip gradients, or look for what is not finite in the data of that rank",
                field="training",
            )


@dataclass(frozen=True)
class LeftOut:
    """Local steps that one rank left out by itself, since its own gradients were not finite."""

    num: int = 0
    names: tuple[str, ...] = ()
    """Parameters of the last one."""

    def with_one(self, names: tuple[str, ...]) -> LeftOut:
        """Return the count with one step more, of whose parameters ``names`` had a gradient that is not finite."""
        return LeftOut(self.num + 1, names[:_NUM_LISTED])
