"""What each plan would do on one network, beside dense and the plan in force. Pure: asking changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.control.decision import Prediction
from trimtab.control.knee import log_speedup
from trimtab.control.staleness import reads_gain
from trimtab.control.types import ControllerSettings, OptimizerFamily
from trimtab.plan import Plan, dense_plan


class PlanEvaluator:
    """Predictions at one step, and how they compare."""

    def __init__(
        self,
        evaluate: Callable[[Plan], Prediction],
        settings: ControllerSettings,
        present: Plan,
        optimizer: OptimizerFamily,
    ) -> None:
        self.evaluate = evaluate
        self.settings = settings
        self.dense = evaluate(dense_plan(settings.fusions[0]))
        self.present = evaluate(present)
        self.reads_gain = reads_gain(optimizer)
        """Whether the gain tells anything of the steps that the job needs."""

    def candidates(self) -> list[Prediction]:
        """The plans that trials measure: some ratios by each collective, in the present buffers."""
        settings, fusion = self.settings, self.present.plan.fusion
        return [
            self.evaluate(Plan(ratio, collective, settings.sparsifier, fusion))
            for ratio in settings.candidate_ratios
            for collective in settings.collectives
        ]

    def log_speedup(self, prediction: Prediction) -> float:
        """Logarithm of how much sooner than dense a plan reaches the target, as the speed weight weighs it."""
        return log_speedup(prediction, self.dense, self.settings.speed_weight)
