"""Ranks that wait for each other: what is seen step by step says what rounds of local steps would wait, and back."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from trimtab.control.cost_model.predictor import Predictor
from trimtab.control.cost_model.straggler_wait import Waits
from trimtab.control.types import ModelFacts, StepReport
from trimtab.plan.plan import Plan

LATENCY, BANDWIDTH = 1e-3, 1e8
GRADIENTS = Plan(0.01, "all-gather")
UPDATES = Plan(0.01, "all-gather", source="update:steps=16")

Draw = Callable[[np.random.Generator, int], np.ndarray]


def alike(rng: np.random.Generator, count: int) -> np.ndarray:
    return 0.1 * np.exp(rng.normal(0, 0.2, (count, 4)))


def first_evaluates(rng: np.random.Generator, count: int) -> np.ndarray:
    """Rank 0 takes twice as long every fifth step, the others now and then."""
    seconds = 0.1 + rng.exponential(0.01, (count, 4))
    seconds[::5, 0] += 0.1
    return seconds


def one_slow_rank(rng: np.random.Generator, count: int) -> np.ndarray:
    seconds = 0.1 + rng.normal(0, 0.005, (count, 4))
    seconds[:, 2] += 0.05
    return seconds


def slow_for_a_while(rng: np.random.Generator, count: int) -> np.ndarray:
    """Each rank's machine is slow for some ten steps at a time."""
    seconds = np.empty((count, 4))
    slowness = rng.normal(0, 0.2, 4)
    for index in range(count):
        slowness = 0.9 * slowness + rng.normal(0, 0.2 * (1 - 0.9**2) ** 0.5, 4)
        seconds[index] = 0.1 * np.exp(slowness)
    return seconds


def all_together(rng: np.random.Generator, count: int) -> np.ndarray:
    """As on a machine that they share."""
    return np.repeat(0.1 * np.exp(rng.normal(0, 0.3, (count, 1))), 4, axis=1)


def observed(draw: Draw, local_steps: int = 1, count: int = 50) -> Waits:
    waits = Waits()
    for arrivals in draw(np.random.default_rng(1), count * local_steps).reshape(count, local_steps, 4).sum(axis=1):
        waits.observe(local_steps, tuple(arrivals))
    return waits


def true_waits(draw: Draw, local_steps: int) -> float:
    """A step's in a long run of the same ranks."""
    steps = draw(np.random.default_rng(2), 3000 * local_steps)
    rounds = steps.reshape(3000, local_steps, 4).sum(axis=1)
    return float(rounds.max(axis=1).mean() / local_steps - steps.mean(axis=0).max())


@pytest.mark.parametrize("local_steps", [1, 4, 16])
@pytest.mark.parametrize("draw", [alike, first_evaluates, one_slow_rank, all_together])
def test_steps_that_are_seen_one_by_one_say_what_rounds_wait(draw: Draw, local_steps: int):
    """Within 4% of what a step computes, by fifty of them."""
    assert observed(draw).seconds(local_steps) == pytest.approx(true_waits(draw, local_steps), abs=4e-3)


def test_ranks_that_are_alike_wait_less_in_rounds_and_a_slow_one_is_never_waited_out():
    waits = observed(alike)
    assert waits.seconds(16) < 0.4 * waits.seconds(1)
    assert observed(one_slow_rank).seconds(1) < 1e-4, "it waits for nobody; all of it is its own computing"


def test_short_rounds_wait_as_steps_do_for_a_rank_that_stays_slow_for_a_while():
    waits = observed(slow_for_a_while)
    assert waits.seconds(4) > 0.8 * waits.seconds(1)


@pytest.mark.parametrize("local_steps", [1, 4])
def test_rounds_say_what_steps_would_wait_by_the_root_of_their_number(local_steps: int):
    waits = observed(alike, 16)
    assert waits.seconds(local_steps) == pytest.approx(waits.seconds(16) * (16 / local_steps) ** 0.5)
    assert waits.seconds(local_steps) == pytest.approx(true_waits(alike, local_steps), rel=0.5)


def test_what_was_seen_of_fewer_steps_is_kept_in_rounds():
    waits = observed(alike)
    before = waits.seconds(1)
    for _ in range(100):
        waits.observe(16, (1.6, 1.7, 1.6, 1.6))
    assert waits.seconds(1) == before
    assert waits.seconds(16) == 0.0, "the same rank is last each time"


def test_one_rank_that_stood_still_once_does_not_decide():
    waits, still = observed(alike), observed(alike)
    still.observe(1, (0.1, 0.1, 60.0, 0.1))
    assert still.seconds(1) < waits.seconds(1) + 0.01


def test_nothing_is_said_of_few_steps_or_of_such_that_nobody_timed():
    assert observed(alike, count=7).seconds(1) == 0.0
    waits = Waits()
    for _ in range(20):
        waits.observe(1, ())
        waits.observe(1, (0.0, 0.0))
    assert waits.seconds(1) == 0.0


def test_it_is_kept_in_a_checkpoint_and_forgotten_with_another_number_of_ranks():
    waits, restored = observed(alike), Waits()
    restored.load_state_dict(json.loads(json.dumps(waits.state_dict())))
    assert restored.seconds(4) == waits.seconds(4) > 0
    restored.observe(1, (0.1, 0.2))
    assert restored.seconds(4) == 0.0


def step(plan: Plan, arrivals: np.ndarray) -> StepReport:
    """As rank 0 reports it once all have told when they came: its exchange takes 20 ms."""
    computing = float(arrivals.max())
    arrived = tuple(arrivals)
    return StepReport(1, plan, computing + 0.02, computing, 0, 0.02, 1000, 6, 0.3, 1.0, True, arrival_seconds=arrived)


def test_predictions_count_what_rounds_no_longer_wait():
    predictor = Predictor(ModelFacts(1_000_000, (1_000_000,), 4))
    steps = alike(np.random.default_rng(1), 50)
    for arrivals in steps:
        predictor.observe_step(step(GRADIENTS, arrivals), LATENCY, 1 / BANDWIDTH)
    by_steps, by_rounds = (
        each.step_seconds - each.sync_seconds - each.compress_seconds
        for each in (predictor.predict(plan, LATENCY, 1 / BANDWIDTH) for plan in (GRADIENTS, UPDATES))
    )
    assert by_steps == pytest.approx(predictor.compute_seconds)
    assert by_steps == pytest.approx(steps[-25:].max(axis=1).mean(), rel=0.05)
    assert by_rounds == pytest.approx(by_steps + true_waits(alike, 16) - true_waits(alike, 1), abs=4e-3)


def test_the_predictor_keeps_it_in_a_checkpoint():
    facts = ModelFacts(1_000_000, (1_000_000,), 4)
    predictor, restored = Predictor(facts), Predictor(facts)
    for arrivals in alike(np.random.default_rng(1), 50):
        predictor.observe_step(step(GRADIENTS, arrivals), LATENCY, 1 / BANDWIDTH)
    restored.load_state_dict(json.loads(json.dumps(predictor.state_dict())))
    assert restored.compute_seconds == predictor.compute_seconds
    assert restored.predict(UPDATES, LATENCY, 1 / BANDWIDTH) == predictor.predict(UPDATES, LATENCY, 1 / BANDWIDTH)


def test_a_checkpoint_that_an_earlier_version_wrote_is_read_without_what_steps_computed():
    facts = ModelFacts(1_000_000, (1_000_000,), 4)
    state, restored = Predictor(facts).state_dict(), Predictor(facts)
    del state["waits"]
    restored.load_state_dict({**state, "compute": [0.1] * 25})
    assert restored.compute_seconds == Predictor(facts).compute_seconds
