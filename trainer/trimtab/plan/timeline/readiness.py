"""Readiness of gradients and need of parameters in the course of a step's computation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from trimtab.plan.profile import Profile

#: Share of the computation that has passed when backward begins: a forward costs half a backward.
_FORWARD_SHARE = 1 / 3
#: Before anything is measured, a gradient element costs about this much computation: what a share of a CPU takes. Less
#: would make the first choice a smaller ratio; going on from there to a slower step asks for more than going down does.
_COMPUTE_SECONDS_PER_ELEMENT = 2e-8


def assumed_compute_seconds(num_elements: int) -> float:
    """Return the assumed computing time of a step, before steps are measured."""
    return num_elements * _COMPUTE_SECONDS_PER_ELEMENT


@dataclass(frozen=True)
class Readiness:
    """Completion of gradients and reading of parameters, as shares of a step's computation.

    The computation ends with the last gradient. The time before backward begins is spread over the modules as their
    forward passes are, or over tensors as their backward passes are if modules were not measured.
    """

    tensor_stops: tuple[int, ...]
    """Element after each tensor, in backward order."""
    shares: tuple[float, ...]
    """Share that has passed when the tensor's gradient is complete."""
    backward_begin: float
    """Share that has passed when backward begins."""
    module_starts: tuple[int, ...]
    """First element of each module, ascending: the forward pass comes to the last of them first."""
    read: tuple[float, ...]
    """Share that has passed when the forward pass has read the module, and all that come after it."""

    @classmethod
    def by_size(cls, tensor_sizes: Sequence[int]) -> Readiness:
        """Assume that each tensor's backward takes in proportion to its elements."""
        return _readiness(tensor_sizes, tensor_sizes, _FORWARD_SHARE, [])

    @classmethod
    def measured(cls, profile: Profile, tensor_sizes: Sequence[int]) -> Readiness:
        """Take the times of a profile."""
        lead, backward = profile.lead_seconds, profile.backward_seconds
        modules = [(module.start, module.forward_seconds) for module in profile.modules]
        return _readiness(tensor_sizes, profile.tensor_backward_seconds, lead / (lead + backward), modules)

    @classmethod
    def of(cls, profile: Profile | None, tensor_sizes: Sequence[int]) -> Readiness:
        """Take the times of a profile, or assume them by size without one."""
        return cls.by_size(tensor_sizes) if profile is None else cls.measured(profile, tensor_sizes)

    def of_buffer(self, stop: int) -> float:
        """Return the share that has passed when all elements before ``stop`` are complete: tensors come whole."""
        return self.shares[bisect_left(self.tensor_stops, stop)]

    def needed(self, stop: int) -> float:
        """Return the share that has passed when the forward pass first reads an element before ``stop``.

        A buffer that ends there is needed then: a module waits for the buffer that holds its first element.
        """
        index = bisect_left(self.module_starts, stop)
        return self.read[index] if index < len(self.read) else 0.0


def _readiness(
    tensor_sizes: Sequence[int],
    backward: Sequence[float],
    forward_share: float,
    modules: Sequence[tuple[int, float]],
) -> Readiness:
    """Return the shares, from backward times of tensors and forward times of modules, in any unit of time."""
    stops, done = tuple(accumulate(tensor_sizes)), list(accumulate(backward))
    if not any(seconds for _, seconds in modules):
        modules = list(zip((0, *stops), backward, strict=False))
    modules = sorted(modules)
    passed = list(accumulate(seconds for _, seconds in reversed(modules)))
    return Readiness(
        stops,
        tuple(forward_share + (1 - forward_share) * min(1.0, seconds / done[-1]) for seconds in done),
        forward_share,
        tuple(start for start, _ in modules),
        tuple(forward_share * seconds / passed[-1] for seconds in reversed(passed)),
    )
