"""Predictions of each plan on one network, beside dense and the plan in force. Pure: asking changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trimtab_api.catalogue import DENSE, collectives, source_options, sparsifiers, wires

from trimtab.control.cost_model.convergence import reads_gain
from trimtab.control.decision import Prediction
from trimtab.control.planning import FusionPlanning
from trimtab.control.search.knee import log_speedup
from trimtab.control.types import ControllerSettings, OptimizerFamily
from trimtab.plan.plan import Plan


class PlanEvaluator:
    """Predictions at one step, and how they compare."""

    def __init__(
        self,
        evaluate: Callable[[Plan], Prediction],
        planning: FusionPlanning,
        settings: ControllerSettings,
        present: Plan,
        optimizer: OptimizerFamily,
    ) -> None:
        self.settings = settings
        self.dense = evaluate(planning.dense(settings))
        self.present = evaluate(present)
        self.reads_gain = reads_gain(optimizer)
        """True if the gain tells anything of the steps that the job needs."""
        self._num_states = 1 if optimizer.kind == "sgd" else 2
        self._evaluate, self._planning = evaluate, planning

    def predict(self, **axes: Any) -> Prediction:
        """Predict the plan with these values on the axes of a `Space`, in buffers planned for it."""
        return self._evaluate(self._planning.plan(**axes))

    def first(self) -> Prediction:
        """Predict the plan that training begins with."""
        return self._evaluate(self._planning.first(self.settings))

    def candidates(self) -> list[Prediction]:
        """Predict the plans that trials measure: the present one with other ratios and collectives.

        There are none if the present plan takes local steps: a trial is too short for rounds of these.
        """
        settings, present = self.settings, self.present.plan
        if present.local_steps:
            return []
        if present.is_dense:
            present = replace(present, sparsifier=settings.sparsifiers[0], wire=settings.wires[0])
        return [
            self._evaluate(replace(present, ratio=ratio, collective=collective, version=0))
            for ratio in settings.candidate_ratios
            for collective in settings.collectives
        ]

    def kinds(self) -> list[Prediction]:
        """Predict a few plans of each kind.

        They are dense, and every source by every collective and format at the ratios of trials; and `of_all_values`.
        """
        settings = self.settings
        axes = {"sparsifier": settings.sparsifiers[0], "fusion": settings.fusions[0], "schedule": settings.schedules[0]}
        sparse = [
            self.predict(ratio=ratio, collective=collective, source=source, wire=wire, **axes)
            for ratio in settings.candidate_ratios
            for collective in settings.collectives
            for source in settings.sources
            for wire in settings.wires
        ]
        return [self.dense, *sparse, *self.of_all_values()]

    def of_all_values(self) -> list[Prediction]:
        """Predict the plans that send all of a gradient otherwise than dense does, or all of an update.

        A `Space` has no such plans.
        """
        settings = self.settings
        summed_by = tuple(dict.fromkeys((DENSE, *settings.dense_collectives)))
        sent = [
            (collective, wire)
            for collective in summed_by
            for wire in (wires.default, *settings.dense_wires)
            if wire in collectives[collective].wires
        ]
        axes = {"sparsifier": sparsifiers.default, "fusion": settings.fusions[0], "schedule": settings.schedules[0]}
        updates = (source for source in settings.sources if source_options(source).local_steps)
        return [
            *(self.predict(ratio=1.0, collective=name, wire=wire, **axes) for name, wire in sent[1:]),
            *(self.predict(ratio=1.0, collective=name, source=each, **axes) for each in updates for name in summed_by),
        ]

    def source_change_seconds(self, before: Plan, after: Plan) -> float:
        """Predict the seconds that ranks exchange once if updates give way to gradients.

        They send as much as so many dense steps: what is held back of updates is sent whole, and the optimizers' state
        is made the same. Ranks exchange nothing if gradients give way to updates
        (`trimtab.engine.local_sgd.mode_switch`).
        """
        if not before.local_steps or after.local_steps:
            return 0.0
        return ((not before.is_dense) + self._num_states) * self.dense.sync_seconds

    def log_speedup(self, prediction: Prediction) -> float:
        """Return the log of how much sooner than dense a plan reaches the target, as the speed weight weighs it."""
        return log_speedup(prediction, self.dense, self.settings.speed_weight)
