"""The sources of a plan: what ranks exchange, gradients or the updates of local steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trimtab_api.catalogue.options import Option, positive, share, whole_number
from trimtab_api.catalogue.registry import Registry
from trimtab_api.catalogue.rows import Row

#: Between two exchanges: more would be a job that hardly trains together.
MOST_LOCAL_STEPS = 1024

MOMENTUM = Option("momentum", share, "of momentum correction, in place of the optimizer's (DGC)", default=0.0)
CLIP = Option("clip", positive, "L2 norm to which each rank clips its gradient, times sqrt(N)", default=0.0)
WARMUP = Option("warmup", whole_number(0), "steps in which the ratio falls from 0.316 to the plan's", default=0)
LOCAL_STEPS = Option("steps", whole_number(1, MOST_LOCAL_STEPS), "H, the steps between two exchanges", default=1)
OUTER_RATE = Option("outerRate", positive, "of the outer step, by the mean update of a round", default=1.0)
OUTER_MOMENTUM = Option("outerMomentum", share, "Nesterov's, of the outer step (DiLoCo)", default=0.0)

sources: Registry[Row] = Registry(
    "source",
    Row("gradient", "gradients, before the optimizer", options=(MOMENTUM, CLIP, WARMUP)),
    Row(
        "update",
        "what each rank's own optimizer made of its gradients",
        options=(LOCAL_STEPS, OUTER_RATE, OUTER_MOMENTUM),
    ),
)


@dataclass(frozen=True)
class SourceOptions:
    """The options of a source; one that the source does not have is 0."""

    local_steps: int
    """H: steps that each rank takes by itself before the update that they made is exchanged; 0: gradients are."""
    outer_rate: float
    """The outer learning rate: the share of a round's mean update by which the anchor moves."""
    outer_momentum: float
    """Nesterov's, of the outer step."""
    momentum: float
    """The factor of momentum correction."""
    clip: float
    """The L2 norm of local gradient clipping, times the root of the number of ranks."""
    warmup: int
    """Steps in which the ratio falls to the plan's."""


@lru_cache(maxsize=256)
def source_options(source: str) -> SourceOptions:
    """Return the options of a source's text, such as ``update:steps=4``."""
    values = sources.options(source)
    return SourceOptions(
        local_steps=values.get(LOCAL_STEPS.name, 0),
        outer_rate=values.get(OUTER_RATE.name, 0.0),
        outer_momentum=values.get(OUTER_MOMENTUM.name, 0.0),
        momentum=values.get(MOMENTUM.name, 0.0),
        clip=values.get(CLIP.name, 0.0),
        warmup=values.get(WARMUP.name, 0),
    )
