"""Times of runs of consecutive tensors, by which planners that weigh times make their cuts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil

from trimtab_api.catalogue.fusion import MOST_BUFFERS

from trimtab.plan.fusion.base import BufferCosts
from trimtab.plan.profile import Profile
from trimtab.plan.timeline import BufferTimes, Readiness, Transfer, assumed_compute_seconds, iteration_seconds


class RunTimes:
    """Times [s] of tensors ``first .. last-1`` as one buffer, in backward order.

    If a model has more tensors than there may be buffers, neighbouring tensors are grouped until each group can have
    a buffer.
    """

    def __init__(self, profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> None:
        self._costs = costs
        self._exchange: dict[int, float] = {}
        self._compress: dict[int, float] = {}
        readiness = Readiness.of(profile, tensor_sizes)
        self.compute_seconds: float = _compute_seconds(profile, sum(tensor_sizes), costs)
        """Computing time of a step, its forward pass included."""
        each = ceil(len(tensor_sizes) / MOST_BUFFERS)
        last = [*range(each - 1, len(tensor_sizes) - 1, each), len(tensor_sizes) - 1]
        stops = list(accumulate(tensor_sizes))
        self.offsets = (0, *(stops[index] for index in last))
        """The first element of each tensor, and the end of the last."""
        self.ready: tuple[float, ...] = tuple(self.compute_seconds * readiness.shares[index] for index in last)
        """From the step's begin until each tensor's gradient is complete."""
        self.backward_begin: float = self.compute_seconds * readiness.backward_begin
        """From the step's begin until its backward pass."""

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self.ready)

    def backward(self, first: int, last: int) -> float:
        """Return the seconds of computing the gradients of tensors ``first .. last-1``."""
        return self.ready[last - 1] - (self.ready[first - 1] if first else self.backward_begin)

    def compress(self, first: int, last: int) -> float:
        """Return the seconds of compressing them as one buffer."""
        size = self.offsets[last] - self.offsets[first]
        if size not in self._compress:
            self._compress[size] = self._costs.compress(size)
        return self._compress[size]

    def exchange(self, first: int, last: int) -> float:
        """Return the seconds of their exchange as one buffer."""
        size = self.offsets[last] - self.offsets[first]
        if size not in self._exchange:
            self._exchange[size] = self._costs.exchange(size)
        return self._exchange[size]

    def cuts(self, begins: Sequence[int]) -> tuple[int, ...]:
        """Return the cuts of a fusion plan whose buffers begin at these tensors; the first is tensor 0."""
        return tuple(self.offsets[begin] for begin in begins)

    def step_seconds(self, begins: Sequence[int]) -> float:
        """Return the wall time of a step whose buffers begin at these tensors, sent wait-free."""
        runs = list(pairwise([*begins, len(self)]))
        buffers = BufferTimes(
            [self.ready[last - 1] for _, last in runs],
            [self.compress(*run) for run in runs],
            [self.exchange(*run) for run in runs],
        )
        return iteration_seconds(self.compute_seconds, buffers, [Transfer(number) for number in range(len(runs))])


def _compute_seconds(profile: Profile | None, num_elements: int, costs: BufferCosts) -> float:
    if costs.compute_seconds is not None:
        return costs.compute_seconds
    if profile is not None:
        return profile.lead_seconds + profile.backward_seconds
    return assumed_compute_seconds(num_elements)
