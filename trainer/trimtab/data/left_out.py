"""What an epoch leaves out, so that every rank has as many batches: a small data set may lose all of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LeftOut:
    """What no rank trains on in an epoch."""

    num: int
    of: int
    unit: str
    """What is counted: samples or batches."""
    why: str

    @property
    def share(self) -> float:
        """As a share of all."""
        return self.num / self.of if self.of else 0.0

    def __str__(self) -> str:
        return f"{self.num} of {self.of} {self.unit} are left out in each epoch, since {self.why}"


def of_rounds(num_batches: int, num_ranks: int) -> LeftOut | None:
    """What is left out where ranks share whole batches; None where that is nothing."""
    num = num_batches % num_ranks
    return LeftOut(num, num_batches, "batches", f"each of {num_ranks} ranks has as many") if num else None


def of_last_batches(num_samples: int, num_batches: int, batch_size: int, num_ranks: int) -> LeftOut | None:
    """What is left out where each rank drops its last, incomplete batch; None where that is nothing.

    Args:
        num_samples: In an epoch, over all ranks.
        num_batches: Of each rank.
        batch_size: Of each rank.
        num_ranks: How many train together.
    """
    num = num_samples - num_batches * batch_size * num_ranks
    why = f"drop_last drops the incomplete batch of each of {num_ranks} ranks (batch_size={batch_size} is per rank)"
    return LeftOut(num, num_samples, "samples", why) if num > 0 else None


def length_of(loader: Any) -> int | None:
    """``len`` of anything; None where it has none."""
    try:
        return len(loader)
    except TypeError:
        return None
