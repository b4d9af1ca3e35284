"""The plan, which the controller may change: immutable and versioned, with its text and JSON forms.

The text names every axis that is not the default (`trimtab_api.catalogue.plan_text`); JSON carries the cuts and the
schedule's timetable as well. This module imports nothing heavy, so that ``trimtab plan`` answers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from trimtab_api import catalogue
from trimtab_api.catalogue import (
    BYTES_PER_ELEMENT,
    DENSE,
    Collective,
    Cost,
    collective_cost,
    parse_plan_text,
    planners,
    source_options,
)
from trimtab_api.errors import UserError

from trimtab.plan.constraints import Script, check_schemes
from trimtab.plan.timetable import Timetable

Selection = Literal["ahead", "behind"]

#: Ratios of a warm-up, each for an equal share of its steps (Deep Gradient Compression, section 3.3, and its code).
WARMUP_RATIOS = (0.316, 0.1, 0.032, 0.01, 0.0032)
#: A round of local steps hears of a new plan so many steps before its exchange, so that the message is there by then.
ANNOUNCE_STEPS_BEFORE_SYNC = 4


@dataclass(frozen=True)
class FusionPlan:
    """The bucket boundaries of a plan.

    ``cuts`` are element offsets into the flat gradient, in backward order, where a new buffer begins. The first is
    always 0, and buffer ``i`` holds the elements ``cuts[i] .. cuts[i+1]-1``, so that a large tensor may be split.
    ``selection`` is *ahead* of fusion (k per tensor, or per part of one) or *behind* it (k per buffer). ``planner`` is
    the spec of the planner that made the cuts; if empty, they were made by hand, or there are none.
    """

    cuts: tuple[int, ...] = (0,)
    selection: Selection = "behind"
    planner: str = ""

    def __post_init__(self) -> None:
        if not self.cuts or self.cuts[0] != 0 or any(a >= b for a, b in pairwise(self.cuts)):
            raise UserError(
                "a fusion plan's cuts start at 0 and increase", field="fusion.cuts", value=str(list(self.cuts))
            )
        if not self.planner:
            by_hand = "cuts:at=" + "+".join(map(str, self.cuts[1:])) if len(self.cuts) > 1 else planners.default
            object.__setattr__(self, "planner", f"{by_hand}:selection={self.selection}")
        object.__setattr__(self, "planner", planners.normalize(self.planner))
        object.__setattr__(self, "selection", planners.options(self.planner)["selection"])

    def buffers(self, num_elements: int) -> list[range]:
        """Return the elements of each buffer of a gradient of ``num_elements``, in backward order."""
        ends = [*self.cuts[1:], num_elements]
        return [range(start, end) for start, end in zip(self.cuts, ends, strict=True)]


@dataclass(frozen=True)
class Plan:
    """All choices for how gradients cross the network. Every scheme is a spec: its name and its options."""

    ratio: float
    collective: str
    sparsifier: str = catalogue.sparsifiers.default
    """The default if the collective reads none."""
    fusion: FusionPlan = FusionPlan()
    schedule: str = catalogue.schedules.default
    source: str = catalogue.sources.default
    wire: str = catalogue.wires.default
    version: int = 0
    timetable: Timetable | None = None
    """Made by the schedule's planner for these buffers; None before that, and without a planner."""

    def __post_init__(self) -> None:
        axes = (catalogue.collectives, catalogue.sparsifiers, catalogue.schedules, catalogue.sources, catalogue.wires)
        for axis in axes:
            object.__setattr__(self, axis.name, axis.normalize(getattr(self, axis.name)))
        catalogue.check_ratio(self.ratio, self.collective)
        if self.row.has_builtin_sparsifier:
            object.__setattr__(self, "sparsifier", catalogue.sparsifiers.default)
        if self.wire not in self.row.wires:
            raise UserError(f"{self.collective} sends {' or '.join(self.row.wires)}", field="wire", value=self.wire)
        if self.fusion.selection == "ahead" and not self.row.selects_by_tensor:
            per_bucket = FusionPlan(self.fusion.cuts, planner=catalogue.behind(self.fusion.planner))
            object.__setattr__(self, "fusion", per_bucket)
        check_schemes(self.schedule, self.source)
        if self.timetable is not None and self.timetable.num_buckets > len(self.fusion.cuts):
            raise UserError(
                f"its timetable sends {self.timetable.num_buckets} buckets, and there are {len(self.fusion.cuts)}",
                field="schedule",
                value=self.schedule,
            )

    def check_for(self, script: Script) -> None:
        """Raise `UserError` if the script cannot follow the plan."""
        check_schemes(self.schedule, self.source, script)

    @property
    def row(self) -> Collective:
        """The collective's row of the catalogue; looked up each time, because rows cannot be pickled."""
        return catalogue.collectives[self.collective]

    @cached_property
    def is_dense(self) -> bool:
        """True if the whole gradient is sent."""
        return self.row.is_dense

    @property
    def shares_indices(self) -> bool:
        """True if every rank sends the indices that one of them selected (AR-Topk), not each its own."""
        return self.row.shares_indices

    @property
    def name(self) -> str:
        """The text form; the same plan in every table and log."""
        axes = {"fusion": self.fusion.planner}
        axes |= {name: getattr(self, name) for name in catalogue.AXES if name not in axes}
        return catalogue.format_plan(self.ratio, self.collective, axes)

    @property
    def delays_updates(self) -> bool:
        """True if the optimizer gets gradients in later steps than their own, and iterations send parts of them."""
        schedule = catalogue.schedules[self.schedule]
        return schedule.delays_updates and (self.timetable is not None or not schedule.is_planned)

    @property
    def updates_come_late(self) -> bool:
        """True if updates take gradients of earlier iterations than their own, as the schedule is carried out."""
        return self.delays_updates and (self.timetable is None or self.timetable.delays)

    @property
    def merged_iterations(self) -> float:
        """Number of iterations that an update averages over."""
        timetable = self.timetable
        return timetable.iterations_per_update if timetable is not None and timetable.averages else 1.0

    @property
    def num_links(self) -> int:
        """Number of links between the ranks that its buffers cross."""
        return 1 if self.timetable is None else self.timetable.num_links

    @property
    def overlaps_rounds(self) -> bool:
        """True if the updates of a round cross while the next round computes, and are applied one round late."""
        return catalogue.schedules[self.schedule].overlaps_rounds

    @cached_property
    def local_steps(self) -> int:
        """H: steps that each rank takes by itself before their update is exchanged; 0: gradients are exchanged."""
        return source_options(self.source).local_steps

    @property
    def outer_step(self) -> tuple[float, float] | None:
        """Rate and Nesterov momentum of the outer optimizer.

        None without rounds of local steps, and if ranks go on from the average of their weights.
        """
        options = source_options(self.source)
        outer = options.outer_rate, options.outer_momentum
        return outer if self.local_steps and outer != (1.0, 0.0) else None

    @property
    def ends_rounds(self) -> bool:
        """True if local steps are exchanged when their round ends, not under the next."""
        return self.local_steps > 0 and not self.overlaps_rounds

    @property
    def accepts_early_announcement(self) -> bool:
        """True if a round may end by a new plan's exchange, announced `ANNOUNCE_STEPS_BEFORE_SYNC` before its end.

        In shorter rounds the message would often be waited for.
        """
        return self.ends_rounds and self.local_steps >= 2 * ANNOUNCE_STEPS_BEFORE_SYNC

    @property
    def momentum(self) -> float:
        """Momentum of momentum correction; 0 without."""
        return source_options(self.source).momentum

    @property
    def clip(self) -> float:
        """The L2 norm of local gradient clipping, times the root of the number of ranks; 0 without."""
        return source_options(self.source).clip

    def ratio_at(self, step: int) -> float:
        """Return the ratio in force at a step: the plan's, or during warm-up the larger one of `WARMUP_RATIOS`."""
        warmup = source_options(self.source).warmup
        if step >= warmup:
            return self.ratio
        return max(self.ratio, WARMUP_RATIOS[step * len(WARMUP_RATIOS) // warmup])

    def num_senders(self, num_ranks: int) -> int:
        """Return how many selections of an element meet: one of each rank, or of each host whose ranks sum first."""
        return max(1, num_ranks // catalogue.per_host(self.collective))

    def buffer_costs(self, num_elements: int, num_ranks: int, on_each: int = 1) -> list[Cost]:
        """Return the closed-form cost of each buffer of ``num_elements`` in all, if ``on_each`` ranks share a host."""
        return [self.buffer_cost(len(buffer), num_ranks, on_each) for buffer in self.fusion.buffers(num_elements)]

    def buffer_cost(self, num_elements: int, num_ranks: int, on_each: int = 1) -> Cost:
        """Return the closed-form cost of one buffer of ``num_elements``, if ``on_each`` ranks share a host."""
        return collective_cost(
            self.collective, BYTES_PER_ELEMENT * num_elements, self.ratio, num_ranks, self.wire, on_each
        )

    def with_version(self, version: int) -> Plan:
        """Return the plan under another version."""
        return replace(self, version=version)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``decisions.jsonl`` and for other ranks."""
        timetable = None if self.timetable is None else self.timetable.to_json()
        return {**asdict(replace(self, timetable=None)), "timetable": timetable}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """Return the plan that `to_json` wrote."""
        fusion, timetable = data["fusion"], data.get("timetable")
        return cls(
            **{
                **data,
                "fusion": FusionPlan(tuple(fusion["cuts"]), planner=fusion["planner"]),
                "timetable": None if timetable is None else Timetable.from_json(timetable),
            }
        )

    @classmethod
    def parse(cls, text: str, fusion: FusionPlan | None = None, **otherwise: str) -> Plan:
        """Read ``dense``, ``dense-ring``, ``0.01/all-gather`` or ``0.01/all-gather/sparsifier=topk``.

        A fusion planner that the text names has not made its cuts yet: `trimtab.plan.fusion.cut` does, given the
        tensors.

        Args:
            text: The plan's text.
            fusion: Used if the text names no fusion planner.
            otherwise: Used by axis, if the text does not name it.

        Raises:
            UserError: Names the part that is wrong.
        """
        told = parse_plan_text(text)
        axes: dict[str, Any] = {"fusion": fusion or FusionPlan(), **otherwise, **told.axes}
        if "fusion" in told.axes:
            axes["fusion"] = FusionPlan(planner=told.axes["fusion"])
        return cls(told.ratio, told.collective, **axes)


def dense_plan(fusion: FusionPlan | None = None) -> Plan:
    """Return the plan that sends everything, the fallback of every guard rail."""
    return Plan(ratio=1.0, collective=DENSE, fusion=fusion or FusionPlan())


def elements_to_send(ratio: float, num_elements: int) -> int:
    """Return k = round(c n), at least 1 and at most n, for ratio c of n elements."""
    return max(1, min(num_elements, round(ratio * num_elements)))


def split_elements(ratio: float, offsets: Sequence[int]) -> list[int]:
    """Return k of every segment if selection is per tensor; ``offsets`` has one entry more."""
    return [elements_to_send(ratio, end - start) for start, end in pairwise(offsets)]
