"""When gradients are complete while a step computes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from trimtab.profile import Profile

#: Share of the computation that has passed when backward begins: a forward costs half a backward.
_FORWARD_SHARE = 1 / 3
#: Before anything is measured, a gradient element costs about this much computation: what a share of a CPU takes. Less
#: would make the first choice a smaller ratio; going on from there to a slower step asks for more than going down does.
_COMPUTE_SECONDS_PER_ELEMENT = 2e-8


def assumed_compute_seconds(num_elements: int) -> float:
    """What a step computes, before steps are measured."""
    return num_elements * _COMPUTE_SECONDS_PER_ELEMENT


@dataclass(frozen=True)
class Readiness:
    """When gradients are complete, as shares of a step's computation, which ends with the last of them."""

    tensor_stops: tuple[int, ...]
    """The element after each tensor, in backward order."""
    shares: tuple[float, ...]
    """The share that has passed when its gradient is complete."""
    backward_begin: float = _FORWARD_SHARE
    """The share that has passed when backward begins."""

    @classmethod
    def by_size(cls, tensor_sizes: Sequence[int]) -> Readiness:
        """As if each tensor's backward took in proportion to its elements."""
        stops = tuple(accumulate(tensor_sizes))
        return cls(stops, tuple(_FORWARD_SHARE + (1 - _FORWARD_SHARE) * stop / stops[-1] for stop in stops))

    @classmethod
    def measured(cls, profile: Profile, tensor_sizes: Sequence[int]) -> Readiness:
        """As a profile has it."""
        lead, backward = profile.lead_seconds, profile.backward_seconds
        passed = accumulate(profile.tensor_backward_seconds)
        return cls(
            tuple(accumulate(tensor_sizes)),
            tuple((lead + min(seconds, backward)) / (lead + backward) for seconds in passed),
            lead / (lead + backward),
        )

    @classmethod
    def of(cls, profile: Profile | None, tensor_sizes: Sequence[int]) -> Readiness:
        """As a profile has it, or by size where there is none."""
        return cls.by_size(tensor_sizes) if profile is None else cls.measured(profile, tensor_sizes)

    def of_buffer(self, stop: int) -> float:
        """The share that has passed when all elements before ``stop`` are complete: tensors come as a whole."""
        return self.shares[bisect_left(self.tensor_stops, stop)]
