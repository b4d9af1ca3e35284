"""The plans that no other plan beats in everything."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from trimtab.control.decision import Prediction


def objectives(prediction: Prediction) -> tuple[float, float, float]:
    """Return what is minimised: seconds of selection, seconds of the rest of the step, and convergence slowdown.

    The rest is the exchange, as far as it is not hidden, and computation, which is the same for all. Steps and not
    inverse gain, of which they are a function for each family of collectives: with equal gains all-gather needs fewer
    than AR-Topk. So the plan that reaches the target first is dominated by none.
    """
    rest = prediction.step_seconds - prediction.compress_seconds
    return prediction.compress_seconds, rest, prediction.convergence_slowdown


def front(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the predictions that no other dominates, each once, fastest exchange first.

    In ascending order of all objectives, a prediction is dominated only by earlier ones, and these are no worse in the
    first objective: of the other two it is compared with the staircase of those that nothing earlier dominated.
    """
    unique: dict[tuple[float, float, float], Prediction] = {}
    for prediction in predictions:
        unique.setdefault(objectives(prediction), prediction)
    survivors: list[Prediction] = []
    seconds: list[float] = []  # of the staircase, ascending
    steps: list[float] = []  # at each of them, descending
    for values in sorted(unique):
        _, rest, convergence_slowdown = values
        place = bisect_right(seconds, rest)
        if place > 0 and steps[place - 1] <= convergence_slowdown:
            continue
        survivors.append(unique[values])
        end = place
        while end < len(steps) and steps[end] >= convergence_slowdown:
            end += 1
        seconds[place:end], steps[place:end] = [rest], [convergence_slowdown]
    return sorted(survivors, key=lambda prediction: prediction.sync_seconds)


def spread(predictions: Sequence[Prediction], most: int, always: Prediction) -> list[Prediction]:
    """Return at most ``most`` predictions of a front, in its order, and among these ``always``, if it is on the front.

    They are those that NSGA-II would keep: with the largest crowding distance, so that no part of the front is empty
    (Deb et al., A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II, section III-B).
    """
    if len(predictions) <= most:
        return list(predictions)
    from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance

    distances = calc_crowding_distance(np.array([objectives(prediction) for prediction in predictions]))
    distances[[prediction is always for prediction in predictions]] = np.inf
    kept = sorted(np.argsort(-distances, kind="stable")[:most].tolist())
    return [predictions[i] for i in kept]
