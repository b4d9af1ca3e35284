"""Evaluators of made-up predictions, where a test thinks of plans and not of models."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.decision import Prediction
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.planning import FusionPlanning
from trimtab.control.types import ControllerSettings, ModelFacts, OptimizerFamily
from trimtab.plan.plan import Plan

SGD = OptimizerFamily("SGD", "sgd")
FACTS = ModelFacts(1000, (1000,), 4, SGD)


def evaluator_of(evaluate: Callable[[Plan], Prediction], settings: ControllerSettings, present: Plan) -> PlanEvaluator:
    """What ``evaluate`` says of every plan, in one buffer each."""
    planning = FusionPlanning(Predictor(FACTS), FACTS, settings.candidate_ratios)
    return PlanEvaluator(evaluate, planning, settings, present, SGD)
