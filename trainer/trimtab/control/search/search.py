"""The plans that a choice is made among: all of a space that is small enough, those that NSGA-II visits of others.

Enumeration is exact and takes some 30 to 60 microseconds a plan. NSGA-II is pymoo's, as in Flexible Communication,
section 3-E; it is tested against enumeration.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.control.decision import Prediction
from trimtab.control.search.pareto import objectives
from trimtab.control.search.space import Space

#: Plans that may be predicted for one decision: 120 to 240 ms of a core, where they have one buffer. Training waits
#: beside it.
MOST_EVALUATIONS = 4000
_POPULATION, _GENERATIONS = 100, 20


def solve(
    space: Space, evaluate: Callable[..., Prediction], seed: int, most_evaluations: int = MOST_EVALUATIONS
) -> list[Prediction]:
    """Predict all plans of the space, or those that a search for its front visits; the same for a seed.

    Args:
        space: The plans.
        evaluate: Predicts the plan that has the given value on each axis.
        seed: Of the search.
        most_evaluations: A larger space is searched.
    """
    if len(space) <= most_evaluations:
        return [evaluate(**values) for values in space]
    return _nsga2(space, evaluate, seed)


def _nsga2(space: Space, evaluate: Callable[..., Prediction], seed: int) -> list[Prediction]:
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem
    from pymoo.optimize import minimize

    lengths = np.array([len(values) for values in space.axes.values()])
    known: dict[tuple[int, ...], Prediction] = {}

    def at(row: NDArray[np.float64]) -> Prediction:
        indices = tuple(int(index) for index in row)
        if indices not in known:
            known[indices] = evaluate(**space.at(indices))
        return known[indices]

    class PlanProblem(Problem):  # type: ignore[misc]
        """An index on each axis, as the integer part of a real."""

        def __init__(self) -> None:
            super().__init__(n_var=len(lengths), n_obj=3, xl=np.zeros(len(lengths)), xu=lengths - 1e-9)

        def _evaluate(self, x: NDArray[np.float64], out: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            out["F"] = np.array([objectives(at(row)) for row in x])

    algorithm = NSGA2(pop_size=_POPULATION, sampling=_first_population(lengths))
    minimize(PlanProblem(), algorithm, ("n_gen", _GENERATIONS), seed=seed, verbose=False)
    return list(known.values())


def _first_population(lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cover the whole of each axis, all axes at once, by a Kronecker sequence, which fills a box evenly."""
    golden = 1.0
    for _ in range(50):  # the root of x^(d+1) = x + 1, of which the golden ratio is the one for d = 1
        golden = (1 + golden) ** (1 / (len(lengths) + 1))
    steps = golden ** -np.arange(1, len(lengths) + 1)
    population: NDArray[np.float64] = np.outer(np.arange(1, _POPULATION + 1), steps) % 1.0 * lengths
    return population


def preload() -> None:
    """Import pymoo now, which takes a second or two, and not at the first decision."""
    for module in ("pymoo.algorithms.moo.nsga2", "pymoo.core.problem", "pymoo.optimize"):
        import_module(module)
