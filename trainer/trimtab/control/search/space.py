"""The plans that may be chosen: every combination of the values on each axis of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import ceil, floor, log10, prod
from typing import Any

from trimtab_api.catalogue import schedules, sources, sparsifiers, wires

from trimtab.control.types import ControllerSettings


@dataclass(frozen=True)
class Space:
    """The axes, each named after the field of `Plan` that it sets, and its values. Dense is in no space."""

    ratio: tuple[float, ...]
    collective: tuple[str, ...]
    sparsifier: tuple[str, ...] = (sparsifiers.default,)
    fusion: tuple[str, ...] = ("single",)
    """Planners: the buffers that they make depend on the other axes."""
    schedule: tuple[str, ...] = (schedules.default,)
    source: tuple[str, ...] = (sources.default,)
    wire: tuple[str, ...] = (wires.default,)

    @classmethod
    def of(cls, settings: ControllerSettings) -> Space:
        """Create the space of what the user's settings leave open.

        If there are several sources and formats of values, it holds fewer ratios, so that it stays as large.
        """
        ratios = ratio_grid(settings.min_ratio, settings.max_ratio)
        return cls(
            ratio=(*ratios[: -1 : len(settings.sources) * len(settings.wires)], ratios[-1]),
            collective=settings.collectives,
            sparsifier=settings.sparsifiers,
            fusion=settings.fusions,
            schedule=settings.schedules,
            source=settings.sources,
            wire=settings.wires,
        )

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """The values of each axis, by its name."""
        return {axis.name: getattr(self, axis.name) for axis in fields(self)}

    def __len__(self) -> int:
        """Return the number of plans."""
        return prod(map(len, self.axes.values()))

    def at(self, indices: Sequence[int]) -> dict[str, Any]:
        """Return the values with these indices on each axis."""
        return {name: values[i] for (name, values), i in zip(self.axes.items(), indices, strict=True)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the values of every plan, by axis."""
        names = tuple(self.axes)
        return (dict(zip(names, values, strict=True)) for values in product(*self.axes.values()))


def ratio_grid(least: float, most: float) -> tuple[float, ...]:
    """Return the bounds, and every ratio of two significant digits between them: finer steps cannot be told apart."""
    exponents = range(floor(log10(least)) - 1, ceil(log10(most)))
    grid = {float(f"{digits}e{exponent}") for exponent in exponents for digits in range(10, 100)}
    return tuple(sorted({ratio for ratio in grid if least < ratio < most} | {least, most}))
