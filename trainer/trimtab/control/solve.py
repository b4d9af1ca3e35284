"""The plans worth choosing among: the Pareto front of selection time, exchange time and steps for the gain lost.

NSGA-II (by pymoo) searches ratio x collective x fusion plan, as in Flexible Communication, section 3-E. `front` is the
definition it is tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.control.decision import Prediction
from trimtab.plan import FusionPlan, Plan

#: Few generations: one costs milliseconds of pymoo's own, and training waits beside. Over 150 random problems the knee
#: found is within 1.4% of the best that enumeration finds, in 99 of 100 within 0.7%.
POPULATION, GENERATIONS = 60, 8


@dataclass(frozen=True)
class Space:
    """What may be chosen."""

    min_ratio: float
    max_ratio: float
    collectives: tuple[str, ...]
    fusions: tuple[FusionPlan, ...]
    sparsifier: str = "tracked"

    def plan(self, log_ratio: float, collective: int, fusion: int) -> Plan:
        """A point of the space; ratios are kept to two digits, finer steps cannot be told apart."""
        ratio = min(self.max_ratio, max(self.min_ratio, float(f"{exp(log_ratio):.2g}")))
        return Plan(ratio, self.collectives[collective], self.sparsifier, self.fusions[fusion])


def objectives(prediction: Prediction) -> tuple[float, float, float]:
    """What is minimised: seconds of selection, seconds of the rest of the step, and steps beside those of dense.

    The rest is the exchange, as far as it is not hidden, and computation, which is the same for all. Steps and not
    inverse gain, of which they are a function for each family of collectives: with equal gains all-gather needs fewer
    than AR-Topk. So the plan that reaches the target first is dominated by none.
    """
    return prediction.compress_seconds, prediction.step_seconds - prediction.compress_seconds, prediction.relative_steps


def front(predictions: Sequence[Prediction]) -> list[Prediction]:
    """The predictions that no other prediction dominates, each once, fastest exchange first."""
    unique = list({objectives(prediction): prediction for prediction in predictions}.values())
    values = np.array([objectives(prediction) for prediction in unique]).reshape(-1, 3)
    no_worse = (values[:, None, :] <= values[None, :, :]).all(axis=2)
    better = (values[:, None, :] < values[None, :, :]).any(axis=2)
    dominated = np.any(no_worse & better, axis=0).tolist()
    survivors = [prediction for prediction, lost in zip(unique, dominated, strict=True) if not lost]
    return sorted(survivors, key=lambda prediction: prediction.sync_seconds)


def solve(space: Space, evaluate: Callable[[Plan], Prediction], seed: int) -> list[Prediction]:
    """The front that NSGA-II finds; the same for the same seed."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem
    from pymoo.optimize import minimize

    known: dict[Plan, Prediction] = {}

    def at(row: NDArray[np.float64]) -> Prediction:
        plan = space.plan(row[0], int(row[1]), int(row[2]))
        if plan not in known:
            known[plan] = evaluate(plan)
        return known[plan]

    class Choice(Problem):  # type: ignore[misc]
        """log ratio, and two indices as the integer parts of reals."""

        def __init__(self) -> None:
            super().__init__(
                n_var=3,
                n_obj=3,
                xl=np.array([log(space.min_ratio), 0.0, 0.0]),
                xu=np.array([log(space.max_ratio), len(space.collectives) - 1e-9, len(space.fusions) - 1e-9]),
            )

        def _evaluate(self, x: NDArray[np.float64], out: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            out["F"] = np.array([objectives(at(row)) for row in x])

    algorithm = NSGA2(pop_size=POPULATION, sampling=_spread(space))
    minimize(Choice(), algorithm, ("n_gen", GENERATIONS), seed=seed, verbose=False)
    return front(list(known.values()))


def _spread(space: Space) -> NDArray[np.float64]:
    """The first population: every collective at ratios from the least to the largest, fusion plans in turns."""
    turns = np.arange(POPULATION)
    log_ratios = log(space.min_ratio) + (turns + 0.5) / POPULATION * log(space.max_ratio / space.min_ratio)
    collectives = turns % len(space.collectives)
    fusions = turns // len(space.collectives) % len(space.fusions)
    return np.column_stack((log_ratios, collectives + 0.5, fusions + 0.5))


def preload() -> None:
    """Import pymoo now, which takes a second or two, and not at the first decision."""
    import pymoo.algorithms.moo.nsga2
    import pymoo.core.problem
    import pymoo.optimize  # noqa: F401
