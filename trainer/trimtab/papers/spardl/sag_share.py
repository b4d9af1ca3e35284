"""How much of a block each team sends in B-SAG: SparDL's h, found while training (section 3.3, Algorithm 2).

d teams send h elements each of the same block; where they select alike, fewer than d h are left of the sum, which
should hold L. So h lies between L / d and L, and follows the number of elements that the last sum had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: The first step of h, as a share of the way from L / d to L.
_FIRST_STEP = 0.01


@dataclass(frozen=True)
class SagShare:
    """h and its next step as shares of L, which a change of ratio, of fusion plan or of ranks leaves as they are."""

    share: float
    """h / L, between 1 / d and 1."""
    step: float
    """What is added to it after the next sum; at most the width of that range, in either direction."""
    has_agreed: bool = False
    """Whether the last sum called for a step in the direction of the one before: on the second, the step doubles."""

    @classmethod
    def of_teams(cls, d: int) -> SagShare:
        """Where training begins: h = L / d, as if no two teams selected alike."""
        return cls(1 / d, _FIRST_STEP * (d - 1) / d)

    def elements(self, most: int) -> int:
        """h, of which L is ``most``: at least one."""
        return max(1, round(self.share * most))

    def after(self, num_merged: int, most: int, d: int) -> SagShare:
        """What is next, when the sum over ``d`` teams had ``num_merged`` elements and should have ``most``, L.

        As in Algorithm 2 the step changes its sign, and halves, where the sum grew past L by a step upwards or fell
        short of it by one downwards; the paper's text says the opposite.
        """
        step, has_agreed = self.step, False
        if (num_merged > most) != (step > 0):
            step, has_agreed = (2 * step, False) if self.has_agreed else (step, True)
        else:
            step = -step / 2
        size = min((d - 1) / d, max(1 / most, abs(step)))
        step = size if step > 0 else -size
        return SagShare(min(1.0, max(1 / d, self.share + step)), step, has_agreed)


def of_largest_overlap(
    held: Mapping[tuple[int, int], SagShare], ranges: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], SagShare]:
    """For each of the new ``ranges``, what was held of the old range that shares most elements with it, if any."""

    def overlap(one: tuple[int, int], other: tuple[int, int]) -> int:
        return min(one[1], other[1]) - max(one[0], other[0])

    found: dict[tuple[int, int], SagShare] = {}
    for start, end in ranges:
        nearest = max(held, key=lambda old: overlap(old, (start, end)), default=None)
        if nearest is not None and overlap(nearest, (start, end)) > 0:
            found[start, end] = held[nearest]
    return found
