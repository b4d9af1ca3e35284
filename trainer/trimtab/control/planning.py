"""Which tensors share a buffer, and when it is sent: asked of the planners that a job allows, when it is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from math import log

from trimtab_api.catalogue import schedules, sources, wires

from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.types import ControllerSettings, ModelFacts
from trimtab.plan.fusion import plan_of
from trimtab.plan.fusion.base import BufferCosts
from trimtab.plan.plan import FusionPlan, Plan, dense_plan
from trimtab.plan.schedules import StepFacts, planned
from trimtab.plan.timetable import Timetable

#: The network planned for before one was measured, 1 ms and 1 Gbit/s: the first plan must be the same on every rank.
_NOMINAL_ALPHA, _NOMINAL_BETA = 1e-3, 8e-9
_DENSE = dense_plan()


class FusionPlanning:
    """Fusion plans on one network, by what is known when they are renewed; each is made once, when it is asked for.

    Planners are asked at a few ratios, and what they plan serves for the ratios around them: buffers that differ a
    little at each ratio of a space would be no better, and take seconds to plan.
    """

    def __init__(self, predictor: Predictor, facts: ModelFacts, ratios: Sequence[float]) -> None:
        """Plan for a nominal network until `renew` names another.

        Args:
            predictor: What is known of buffers' times.
            facts: What never changes during a run.
            ratios: Those that planners are asked at.
        """
        self._predictor, self._facts, self._ratios = predictor, facts, tuple(ratios)
        self._alpha, self._beta = _NOMINAL_ALPHA, _NOMINAL_BETA
        self._may_cut = True
        self._made: dict[tuple[object, ...], tuple[FusionPlan, Timetable | None]] = {}
        self._nearest: dict[float, float] = {1.0: 1.0}

    def renew(self, alpha: float, beta: float, *, may_cut: bool = True) -> None:
        """Forget what was planned: more is known by now.

        Args:
            alpha: Seconds per message on the network to plan for.
            beta: Seconds per byte on it.
            may_cut: As `StepFacts` has it.
        """
        self._alpha, self._beta, self._may_cut = alpha, beta, may_cut
        self._made.clear()

    def plan(
        self,
        ratio: float,
        collective: str,
        sparsifier: str,
        fusion: str,
        schedule: str = schedules.default,
        source: str = sources.default,
        wire: str = wires.default,
    ) -> Plan:
        """Return the plan with these values, in the buffers that the planner ``fusion`` makes for it."""
        asked_at, others = self._nearest_ratio(ratio), (schedule, source, wire)
        key = (fusion, asked_at, collective, sparsifier, *others)
        if key not in self._made:
            self._made[key] = self._make(_plan(asked_at, collective, sparsifier, FusionPlan(planner=fusion), *others))
        made, timetable = self._made[key]
        return _plan(ratio, collective, sparsifier, made, *others, timetable)

    def first(self, settings: ControllerSettings) -> Plan:
        """Return the plan to begin training with: a static policy's own, or dense.

        Raises:
            UserError: A planner that may be chosen later has no plan for this model.
        """
        if settings.static_plan is not None:
            return self._cut(settings.static_plan, settings.static_plan.fusion.planner)
        for fusion in settings.fusions:
            self._cut(_DENSE, fusion)
        return self.dense(settings)

    def dense(self, settings: ControllerSettings) -> Plan:
        """Return the plan that sends everything, by the first planner and the first schedule that are allowed."""
        return self._cut(replace(_DENSE, schedule=settings.schedules[0]), settings.fusions[0])

    def _cut(self, plan: Plan, fusion: str) -> Plan:
        return self.plan(plan.ratio, plan.collective, plan.sparsifier, fusion, plan.schedule, plan.source, plan.wire)

    def _make(self, uncut: Plan) -> tuple[FusionPlan, Timetable | None]:
        """Make the buffers by the plan's fusion planner, cut further if its schedule sends them in parts."""
        profile, costs, planner = self._predictor.profile, self._costs(uncut), uncut.fusion.planner
        fusion = plan_of(planner, self._facts.tensor_sizes, profile=profile, costs=costs)
        is_sgd = self._facts.optimizer.kind == "sgd"
        facts = self._facts
        step_facts = StepFacts(
            facts.tensor_sizes,
            costs.compress,
            costs.exchange,
            is_sgd,
            facts.link_slowness,
            facts.shares_interface,
            self._may_cut,
        )
        made = planned(uncut.schedule, fusion.cuts, profile=profile, facts=step_facts)
        return FusionPlan(made.cuts, planner=planner), made.timetable

    def _nearest_ratio(self, ratio: float) -> float:
        if ratio not in self._nearest:
            self._nearest[ratio] = min(self._ratios, key=lambda each: abs(log(each / ratio)))
        return self._nearest[ratio]

    def _costs(self, plan: Plan) -> BufferCosts:
        """Return what buffers take under the plan, by size: as the predictor charges them."""
        predictor, num_elements = self._predictor, self._facts.num_elements
        alpha, beta = self._alpha, self._beta

        # Worked out where they are asked for: a planner of one buffer asks for nothing, for hundreds of plans.
        @cache
        def compress() -> Callable[[int], float]:
            return predictor.compress_times.of_buffer(plan, num_elements)

        return BufferCosts(
            lambda size: compress()(size),
            lambda size: predictor.buffer_seconds(plan, size, alpha, beta),
            predictor.compute_seconds,
        )


@lru_cache(maxsize=20_000)
def _plan(
    ratio: float,
    collective: str,
    sparsifier: str,
    fusion: FusionPlan,
    schedule: str,
    source: str,
    wire: str,
    timetable: Timetable | None = None,
) -> Plan:
    return Plan(ratio, collective, sparsifier, fusion, schedule, source, wire, timetable=timetable)
