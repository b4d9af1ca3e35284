"""What may be chosen: every combination of what each axis of a plan may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import product
from math import ceil, floor, log10, prod
from typing import Any

from trimtab.control.types import ControllerSettings
from trimtab.plan import FusionPlan, Plan


@dataclass(frozen=True)
class Space:
    """The axes, each named after the field of `Plan` that it sets, and its values. Dense is in no space."""

    ratio: tuple[float, ...]
    collective: tuple[str, ...]
    sparsifier: tuple[str, ...] = ("tracked",)
    fusion: tuple[FusionPlan, ...] = (FusionPlan(),)
    schedule: tuple[str, ...] = ("wait-free",)

    @classmethod
    def of(cls, settings: ControllerSettings) -> Space:
        """What the user's settings leave open."""
        return cls(
            ratio=ratio_grid(settings.min_ratio, settings.max_ratio),
            collective=settings.collectives,
            sparsifier=(settings.sparsifier,),
            fusion=settings.fusions,
        )

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """The values of each axis, by its name."""
        return {axis.name: getattr(self, axis.name) for axis in fields(self)}

    def __len__(self) -> int:
        """The number of plans."""
        return prod(map(len, self.axes.values()))

    def plan(self, indices: Sequence[int]) -> Plan:
        """The plan with these values, by their index on each axis."""
        return Plan(**{name: values[i] for (name, values), i in zip(self.axes.items(), indices, strict=True)})

    def plans(self) -> tuple[Plan, ...]:
        """All of them; made once for the decisions that choose from the same space."""
        return _plans(self)


@lru_cache(maxsize=4)
def _plans(space: Space) -> tuple[Plan, ...]:
    names = tuple(space.axes)
    return tuple(Plan(**dict(zip(names, values, strict=True))) for values in product(*space.axes.values()))


def ratio_grid(least: float, most: float) -> tuple[float, ...]:
    """Every ratio of two significant digits between the bounds, and the bounds: finer steps cannot be told apart."""
    exponents = range(floor(log10(least)) - 1, ceil(log10(most)))
    grid = {float(f"{digits}e{exponent}") for exponent in exponents for digits in range(10, 100)}
    return tuple(sorted({ratio for ratio in grid if least < ratio < most} | {least, most}))
