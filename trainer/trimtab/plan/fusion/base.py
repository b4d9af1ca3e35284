"""What every fusion planner is: a pure function, which the controller asks when it decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab_api.catalogue import BYTES_PER_ELEMENT

from trimtab.plan.profile import Profile


@dataclass(frozen=True)
class BufferCosts:
    """Seconds that one buffer takes by itself under the plan that buffers are made for, by its number of elements."""

    compress: Callable[[int], float] = lambda size: 0.0
    exchange: Callable[[int], float] = lambda size: 1e-3 + size * BYTES_PER_ELEMENT * 8e-9
    """The default is one message of 1 ms at 1 Gbit/s, where nothing is known of plan or network."""
    compute_seconds: float | None = None
    """What a step computes, its forward pass included; None: as the profile has it, or by size where there is none."""


class Planner(Protocol):
    """Says where one buffer ends and the next begins."""

    def __call__(
        self, profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts, **options: Any
    ) -> tuple[int, ...]:
        """The cuts (`FusionPlan`) for tensors of so many elements, in backward order.

        ``profile`` has their backward times; before steps were profiled it is None: then plan by sizes. ``options``
        are all those of the planner's row in the catalogue.
        """
