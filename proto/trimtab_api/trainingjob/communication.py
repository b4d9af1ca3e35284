"""``spec.communication`` of a TrainingJob: how gradients cross the network."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trimtab_api.catalogue import (
    DEFAULT_COLLECTIVES,
    SPARSIFIERS,
    VALUE_FORMATS,
    asks_for_ahead,
    collectives,
    normalize_choice,
    parse_plan_text,
    planners,
    schedules,
    selects_not_by_tensor,
    sparsifiers,
    wires,
)
from trimtab_api.catalogue.schedules import OVERLAP_IS_STATIC
from trimtab_api.catalogue.sources import MOST_LOCAL_STEPS
from trimtab_api.errors import UserError
from trimtab_api.trainingjob.fields import ApiModel, Ruled, enum, invalid_value, obeys, one_of, spec_of
from trimtab_api.trainingjob.quantities import BufferSize, Duration, as_written


def _sparse_choice(text: str) -> str:
    """Return the normal form of a sparse collective's spec, of which options may be ``auto``."""
    known = [row.name for row in collectives.rows() if not row.is_dense]
    if text.partition(":")[0] not in known:
        raise UserError(f"not known; choose from {', '.join(known)}")
    return normalize_choice(text)


Ratio = Annotated[float, Field(gt=0, lt=1)]
SparseCollective = Annotated[str, Field(max_length=512), spec_of(_sparse_choice)]
Sparsifier = Annotated[str, one_of(sparsifiers.names), enum(SPARSIFIERS)]
ValueFormat = Annotated[str, one_of(wires.names), enum(VALUE_FORMATS)]
Planner = Annotated[str, Field(max_length=512), spec_of(planners.normalize)]
Schedule = Annotated[str, Field(max_length=512), spec_of(schedules.normalize)]


#: The papers' candidates.
_CANDIDATES = (0.1, 0.033, 0.011, 0.004, 0.001)


class RatioBounds(Ruled):
    """Compression ratios that may be chosen: the fraction of gradient elements sent."""

    at = "spec.communication.ratio"

    min: Ratio = Field(0.001, description="Least ratio that may be chosen.")
    max: Ratio = Field(0.1, description="Largest sparse ratio that may be chosen; dense is always allowed.")
    candidates: tuple[Ratio, ...] | None = Field(
        None,
        strict=False,
        min_length=1,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Ratios that trials measure; between them gain and compression time are interpolated in log ratio."
        f" Unless named: those of {', '.join(map(str, _CANDIDATES))} that lie within min..max, or min and max.",
    )

    def tried(self) -> tuple[float, ...]:
        """Return the candidates: those that are named, or the usual ones as far as the bounds allow."""
        usual = tuple(filter(self._holds, _CANDIDATES)) or tuple(dict.fromkeys((self.max, self.min)))
        return self.candidates or usual

    def _holds(self, ratio: float) -> bool:
        return self.min <= ratio <= self.max


class Fusion(Ruled):
    """The grouping of tensors into buffers."""

    at = "spec.communication.fusion"

    buffer_size: BufferSize = Field(
        as_written("25MB"),
        description="Gradient bytes at which a fusion buffer is closed, such as 25MB; `single`: one buffer for all.",
    )
    selection: Literal["ahead", "behind"] = Field(
        "behind", description="Select elements in each tensor (ahead of fusion) or in each buffer (behind it)."
    )
    alternatives: tuple[Planner, ...] = Field(
        (),
        strict=False,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Further fusion planners that an Adaptive policy may choose from, such as `single` or"
        " `equal:buffers=5`.",
    )


class Triggers(ApiModel):
    """The events that reopen the choice of a plan."""

    network: float = Field(
        0.1, gt=0, le=10, description="Relative change of latency or of inverse bandwidth that reopens the choice."
    )
    gain: float = Field(0.1, gt=0, le=10, description="Relative change of the average gain that reopens the choice.")


class Trials(ApiModel):
    """The trials of candidates while training."""

    iterations: int = Field(10, ge=3, le=1000, description="Iterations of one trial; fewer than 3 tell nothing.")
    budget: float = Field(
        0.05, ge=0, le=1, description="Share of the time that trials and solving together may take; 0: no trials."
    )


class LocalSteps(Ruled):
    """Bounds of the steps that each rank's own optimizer takes between two exchanges of their effect on the weights.

    0: ranks exchange gradients, and step together. 1: they exchange updates, after each step. More: they part, and meet
    again at the end of so many steps, or of the loop over ``session.batches``.
    """

    at = "spec.communication.localSteps"

    min: int = Field(0, ge=0, le=MOST_LOCAL_STEPS, description="Fewest; 0: gradients. Dense stays allowed.")
    max: int = Field(16, ge=0, le=MOST_LOCAL_STEPS, description="Most; 0: gradients alone.")
    outer_rate: float = Field(
        1.0,
        ge=0.001,
        le=10,
        description="Of the outer step, by a round's mean update; 1 is the average of ranks' weights.",
    )
    outer_momentum: float = Field(
        0.0, ge=0, lt=1, description="Nesterov's, of the outer step; DiLoCo takes 0.9, and a rate of 0.7."
    )


class Communication(Ruled):
    """The exchange of gradients over the network."""

    at = "spec.communication"

    policy: Literal["Adaptive", "Static"] = Field(
        "Adaptive", description="Adaptive: keep choosing the plan while training. Static: train under `plan`."
    )
    plan: Annotated[str, Field(max_length=512), obeys("spec.communication.plan")] | None = Field(
        None,
        description="The plan of a Static policy: `dense`, or RATIO/COLLECTIVE such as `0.01/all-gather`; then, by"
        " slashes, axes that are not the default, such as `schedule=priority`. `sparsifier` and `fusion` beside it say"
        " what is meant where it names none.",
    )
    ratio: RatioBounds = Field(default_factory=RatioBounds, description="Compression ratios that may be chosen.")
    collectives: tuple[SparseCollective, ...] = Field(
        DEFAULT_COLLECTIVES,
        strict=False,
        min_length=1,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Sparse collectives that may be chosen, with options as in `spardl:teams=2`; an option that is"
        " `auto` stands for each legal value. Dense is always allowed, by ring, tree or halving.",
    )
    sparsifier: Sparsifier = Field("tracked", description="What picks the elements to send.")
    sparsifier_alternatives: tuple[Sparsifier, ...] = Field(
        (),
        strict=False,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Further sparsifiers that an Adaptive policy may choose from, such as `topk`.",
    )
    fusion: Fusion = Field(default_factory=Fusion, description="Which tensors share a buffer.")
    schedules: tuple[Schedule, ...] = Field(
        (schedules.default,),
        strict=False,
        min_length=1,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="When buffers may be sent; an Adaptive policy chooses from these and begins with the first. Only"
        " `deft` gives the optimizer gradients in later steps than their own, and fewer updates. `overlap`, by which a"
        " round of local steps is applied one round late, is for a Static plan alone.",
    )
    local_steps: LocalSteps | None = Field(
        None,
        description="Local steps between exchanges that an Adaptive policy may choose. Left out: up to 16 under Adam,"
        " SGD and their kin in loops over `session.batches`, else none: gradients are exchanged in each step.",
    )
    value_formats: tuple[ValueFormat, ...] | None = Field(
        None,
        strict=False,
        min_length=1,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Formats in which an Adaptive policy may send selected values; what rounding takes of a value is"
        " sent later. Left out: those of float32, int8 and int4 that all of `collectives` send. A dense gradient may"
        " cross in bfloat16 where this is left out or names it, and always in float32.",
    )
    triggers: Triggers = Field(default_factory=Triggers, description="What reopens the choice of a plan.")
    trials: Trials = Field(default_factory=Trials, description="How candidates are tried out while training.")
    warmup_steps: int = Field(
        5,
        ge=0,
        le=1_000_000,
        description="Steps before the first decision by what was measured: dense, or under what promises to be half as"
        " fast again.",
    )
    speed_weight: float = Field(
        0.5, ge=0, le=1, description="0 cares for gain alone, 1 for step time alone, 0.5 weighs them alike."
    )
    timeout: Annotated[Duration, obeys("spec.communication.timeout")] = Field(
        as_written("30min"),
        description="Longest that ranks wait for one that stands still, an evaluation on rank 0 alone included.",
    )

    @model_validator(mode="after")
    def _check_selection(self) -> Self:
        names = self.collectives if self.plan is None else (parse_plan_text(self.plan).collective,)
        per_bucket = [name for name in names if not collectives[name].selects_by_tensor]
        if per_bucket and self.fusion.selection == "ahead":
            raise invalid_value(("fusion", "selection"), "ahead", selects_not_by_tensor(per_bucket[0]))
        for index, planner in enumerate(self.fusion.alternatives):
            if per_bucket and asks_for_ahead(planner):
                raise invalid_value(("fusion", "alternatives", index), planner, selects_not_by_tensor(per_bucket[0]))
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        for index, name in enumerate(self.schedules):
            if self.policy == "Adaptive" and schedules[name].overlaps_rounds:
                raise invalid_value(("schedules", index), name, OVERLAP_IS_STATIC)
        merging = [name for name in self.schedules if schedules[name].delays_updates and schedules[name].is_planned]
        if merging and self.local_steps is not None and self.local_steps.max > 0:
            remedy = (
                f"{merging[0]} of schedules merges gradients of several steps, and local steps send none; write"
                " max: 0, or leave the schedule out"
            )
            raise invalid_value(("localSteps", "max"), self.local_steps.max, remedy)
        return self
