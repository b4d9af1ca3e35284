"""Finds out whether all ranks train on the same data, in a script that does not loop over ``session.batches``.

A loader that nothing splits gives every rank all the data. Where it also draws alike on all ranks, each computes the
same gradients, to the last bit, and all of them together learn no more than one would. Whether loaders that draw unlike
split the data, nobody can know from outside.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Steps that are compared: one may be alike by chance, as where a weight begins at 0.
_NUM_STEPS = 3


class FirstGradients:
    """The norms of this rank's own gradients in its first steps, before they are exchanged."""

    def __init__(self) -> None:
        self._norms: list[float] = []
        self._is_told = False

    def add(self, norm: float) -> None:
        """Count a training step."""
        if len(self._norms) < _NUM_STEPS:
            self._norms.append(norm)

    @property
    def is_due(self) -> bool:
        """Whether ranks should tell each other of theirs."""
        return len(self._norms) == _NUM_STEPS and not self._is_told

    def take(self) -> list[float]:
        """What to tell the other ranks, once; empty before it is due and afterwards."""
        if not self.is_due:
            return []
        self._is_told = True
        return self._norms


def problem_of(norms: Sequence[Sequence[float]]) -> str:
    """What is wrong, by what each rank has told; empty where nothing is known to be."""
    first = list(norms[0])
    if len(norms) == 1 or len(first) < _NUM_STEPS or not all(first) or any(list(each) != first for each in norms):
        return ""
    return (
        f"all {len(norms)} ranks computed the same gradients in the first {_NUM_STEPS} steps: each trains on the same"
        " data, and together they learn no more than one. Loop over session.batches(loader), or give the loader a"
        " DistributedSampler"
    )
