"""What a decision takes, and what NSGA-II misses, in a minute on one core (docs/adr/0016-plan-search.md).

python benchmarks planning/solver

Needs nothing more; takes a minute.
"""

from __future__ import annotations

import random
import time
from math import exp, log
from statistics import median

from recorded import random_adam_cluster
from simulator import random_cluster
from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.plan_evaluator import PlanEvaluator
from trimtab.control.planning import FusionPlanning
from trimtab.control.search import search as solve
from trimtab.control.search.knee import knee, log_speedup
from trimtab.control.search.pareto import front
from trimtab.control.search.space import Space
from trimtab.control.types import ControllerSettings, ModelFacts
from trimtab.evaluation.judge.simulated_cluster import SimulatedCluster
from trimtab.evaluation.judge.simulated_run import SimulatedRun
from trimtab.plan.plan import dense_plan


def decision_seconds(cluster: SimulatedCluster, seed: int) -> list[float]:
    """Processor seconds of each call that came to a decision, in one simulated run."""
    run, taken = SimulatedRun(cluster, ControllerSettings(), seed), []
    next_action = run.controller.next_action

    def timed(now: float, steps_left: int):
        number, began = run.controller.log.next_id, time.thread_time()
        action = next_action(now, steps_left)
        if run.controller.log.next_id > number:
            taken.append(time.thread_time() - began)
        return action

    run.controller.next_action = timed
    run.until_target()
    return taken


def random_problem(rng: random.Random, num_fusions: int) -> PlanEvaluator:
    """A model and a network as they come, and so many ways to fuse, from 1 to 24 buffers."""
    size = round(exp(rng.uniform(log(1e5), log(1e8)))) // 24
    facts = ModelFacts(24 * size, (size,) * 24, rng.choice([2, 4, 8, 16]))
    predictor = Predictor(facts, exp(rng.uniform(log(0.01), log(1))))
    alpha, beta = exp(rng.uniform(log(1e-4), log(0.05))), 8e-9 / exp(rng.uniform(log(0.05), log(10)))
    fixed = tuple(f"fixed:bytes={4 * 24 * size // n}" for n in range(1, num_fusions + 1))
    settings = ControllerSettings(fusions=fixed)
    planning = FusionPlanning(predictor, facts, settings.candidate_ratios)
    planning.renew(alpha, beta)
    return PlanEvaluator(
        lambda plan: predictor.predict(plan, alpha, beta), planning, settings, dense_plan(), facts.optimizer
    )


def compare(num_fusions: int, num_problems: int = 40) -> None:
    """How long both ways take, and how much later the plan that NSGA-II finds reaches the target."""
    rng, seconds, lost = random.Random(5), {"enumeration": [], "NSGA-II": []}, []
    for seed in range(num_problems):
        evaluator, reached = random_problem(rng, num_fusions), []
        space, dense = Space.of(evaluator.settings), evaluator.dense
        for method, most in (("NSGA-II", 0), ("enumeration", len(space))):
            began = time.thread_time()
            found = front(solve.solve(space, evaluator.predict, seed, most))
            seconds[method].append(time.thread_time() - began)
            reached.append(log_speedup(knee(found, dense, 0.5), dense, 0.5))
        lost.append(exp(reached[1] - reached[0]) - 1)
    times = ", ".join(f"{method} {1e3 * median(taken):.0f} ms" for method, taken in seconds.items())
    nine_in_ten = sorted(lost)[int(0.9 * num_problems)]
    print(f"{len(space)} plans: {times}; later by {median(lost):.2%}, {nine_in_ten:.2%}, {max(lost):.2%}")


if __name__ == "__main__":
    solve.preload()
    taken = sorted(
        each
        for seed in range(8)
        for num_ranks in (4, 8)
        for cluster in (random_cluster(seed, num_ranks), *([random_adam_cluster(seed, num_ranks)] if seed < 4 else []))
        for each in decision_seconds(cluster, seed)
    )
    nine_in_ten = taken[int(0.9 * len(taken))]
    print(f"{len(taken)} decisions: median {1e3 * median(taken):.1f} ms, nine in ten under {1e3 * nine_in_ten:.1f} ms")
    print("Median, nine in ten and most of the time to target that the plan found by NSGA-II costs more:")
    for num_fusions in (1, 6, 20):
        compare(num_fusions)
