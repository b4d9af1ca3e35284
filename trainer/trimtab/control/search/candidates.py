"""Which plans are worth a trial, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.control.decision import Prediction
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.types import RunTrials
from trimtab.plan.plan import Plan

#: Fewer iterations than this tell nothing.
_FEWEST_ITERATIONS = 3
#: A candidate predicted this much worse (in time to target) than the best could not win by being mispredicted.
_WITHIN = 0.25


def trials_to_run(
    evaluator: PlanEvaluator, is_known: Callable[[Plan], bool], steps_left_in_epoch: int, budget_seconds: float
) -> tuple[RunTrials, float] | None:
    """Choose the trials to run before a gain that has moved is acted upon.

    Args:
        evaluator: Predicts plans on the present network.
        is_known: Whether a plan's gain was measured of late.
        steps_left_in_epoch: Iterations that no trial may exceed.
        budget_seconds: What all trials together may be predicted to take.

    Returns:
        The trials and what they are predicted to take [s]; None if none is worth it or fits the budget, or if the epoch
        ends too soon.
    """
    settings = evaluator.settings
    iterations = min(settings.trial_iterations, steps_left_in_epoch)
    if iterations < _FEWEST_ITERATIONS:
        return None
    worth = worth_a_trial(evaluator.candidates(), evaluator.dense, evaluator.log_speedup, is_known)
    chosen, predicted_seconds = within_budget(worth, iterations, budget_seconds)
    if not chosen:
        return None
    reason = f"the gain has moved by more than {settings.gain_change:.0%}"
    return RunTrials(tuple(each.plan for each in chosen), iterations, reason), predicted_seconds


def worth_a_trial(
    predictions: Sequence[Prediction],
    dense: Prediction,
    log_speedup: Callable[[Prediction], float],
    is_known: Callable[[Plan], bool],
) -> list[Prediction]:
    """Return the candidates that might win and were not measured of late, shortest first.

    Args:
        predictions: The candidates; one predicted slower than dense is never worth a trial.
        dense: The prediction of dense.
        log_speedup: The logarithm of a plan's advantage.
        is_known: Whether a plan was measured of late.
    """
    fast_enough = [prediction for prediction in predictions if prediction.step_seconds < dense.step_seconds]
    if not fast_enough:
        return []
    best = max(map(log_speedup, fast_enough))
    unknown = [
        prediction
        for prediction in fast_enough
        if log_speedup(prediction) > best - _WITHIN and not is_known(prediction.plan)
    ]
    return sorted(unknown, key=lambda prediction: prediction.step_seconds)


def within_budget(
    predictions: Sequence[Prediction], iterations: int, budget_seconds: float
) -> tuple[list[Prediction], float]:
    """Return the first of the predictions whose trials together fit the budget, and their predicted seconds.

    Each costs its iterations, and one more for snapshot, restore and the change of plan.
    """
    chosen: list[Prediction] = []
    predicted = 0.0
    for prediction in predictions:
        seconds = (iterations + 1) * prediction.step_seconds
        if predicted + seconds > budget_seconds:
            break
        predicted += seconds
        chosen.append(prediction)
    return chosen, predicted
