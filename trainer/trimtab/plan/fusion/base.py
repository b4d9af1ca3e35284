"""The interface of all fusion planners: a pure function, which the controller calls when it decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab_api.catalogue import BYTES_PER_ELEMENT

from trimtab.plan.profile import Profile


@dataclass(frozen=True)
class BufferCosts:
    """Seconds of one buffer by itself under the plan that buffers are made for, by its number of elements."""

    compress: Callable[[int], float] = lambda size: 0.0
    exchange: Callable[[int], float] = lambda size: 1e-3 + size * BYTES_PER_ELEMENT * 8e-9
    """The default is one message of 1 ms at 1 Gbit/s, for an unknown plan and network."""
    compute_seconds: float | None = None
    """Computing time of a step, forward pass included; None: from the profile, or by size without one."""


class Planner(Protocol):
    """Chooses where one buffer ends and the next begins."""

    def __call__(
        self, profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts, **options: Any
    ) -> tuple[int, ...]:
        """Return the cuts (`FusionPlan`).

        Args:
            profile: Measured times of a step; None before steps were profiled: then plan by sizes.
            tensor_sizes: Elements of each tensor, in backward order.
            costs: Seconds of a buffer.
            options: All options of the planner's row in the catalogue.
        """
