"""What the options of a plan's source ask of the engine and of the controller."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trimtab_api.catalogue.other_axes import (
    CLIP,
    LOCAL_STEPS,
    MOMENTUM,
    OUTER_MOMENTUM,
    OUTER_RATE,
    WARMUP,
    sources,
)


@dataclass(frozen=True)
class SourceOptions:
    """An option that a source does not have is 0."""

    local_steps: int
    """H: steps that each rank takes by itself before the update that they made is exchanged; 0: gradients are."""
    outer_rate: float
    """Of the outer step: what share of a round's mean update the anchor moves by."""
    outer_momentum: float
    """Nesterov's, of the outer step."""
    momentum: float
    """Of momentum correction."""
    clip: float
    """The L2 norm of local gradient clipping, times the root of the number of ranks."""
    warmup: int
    """Steps in which the ratio falls to the plan's."""


@lru_cache(maxsize=256)
def source_options(source: str) -> SourceOptions:
    """Those of a source's text, such as ``update:steps=4``."""
    told = sources.options(source)
    return SourceOptions(
        local_steps=told.get(LOCAL_STEPS.name, 0),
        outer_rate=told.get(OUTER_RATE.name, 0.0),
        outer_momentum=told.get(OUTER_MOMENTUM.name, 0.0),
        momentum=told.get(MOMENTUM.name, 0.0),
        clip=told.get(CLIP.name, 0.0),
        warmup=told.get(WARMUP.name, 0),
    )
