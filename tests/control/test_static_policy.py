"""A static plan's buffers follow what is profiled, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from plans import FACTS
from trimtab.control.choice import Choice
from trimtab.control.decision import Prediction
from trimtab.control.learning import Learner
from trimtab.control.static_policy import StaticPolicy
from trimtab.plan import FusionPlan, Plan
from trimtab.profile import Profile

BEGUN_WITH = Plan(0.01, "all-gather", fusion=FusionPlan((0,)))
PLANNED = replace(BEGUN_WITH, fusion=FusionPlan((0, 400)))
ELSEWHERE = replace(BEGUN_WITH, fusion=FusionPlan((0, 600)))


def step_of(plan: Plan, seconds: float) -> Prediction:
    return Prediction(plan, 0.0, 0.0, 1.0, 1.0, seconds)


class Planning:
    """A policy whose planner finds what a test says, and how often it was asked."""

    def __init__(self) -> None:
        self.learner = Learner(FACTS)
        self.policy = StaticPolicy(self.learner, BEGUN_WITH)
        self.num_asked = 0

    def profiled(self, step: int) -> None:
        self.learner.predictor.profile = Profile(step, 3, BEGUN_WITH, 0.0, (), (), (), None, None, None)

    def plan_anew(self, present: Prediction, found: Prediction) -> Choice | None:
        def renew() -> Any:
            self.num_asked += 1
            return SimpleNamespace(dense=present, present=present, first=lambda: found)

        return self.policy.plan_anew(renew)


@pytest.fixture
def planning() -> Planning:
    return Planning()


def test_without_a_profile_nobody_is_asked(planning: Planning) -> None:
    assert planning.plan_anew(step_of(BEGUN_WITH, 0.2), step_of(PLANNED, 0.1)) is None
    assert planning.num_asked == 0


def test_the_first_profile_replaces_buffers_that_none_was_behind_even_by_slower_ones(planning: Planning) -> None:
    planning.profiled(5)
    choice = planning.plan_anew(step_of(BEGUN_WITH, 0.2), step_of(PLANNED, 0.21))
    assert choice is not None
    assert choice.chosen.plan == PLANNED


@pytest.mark.parametrize(("seconds", "changes"), [(0.19, False), (0.189, True)])
def test_planned_buffers_are_left_for_steps_shorter_by_a_twentieth(
    planning: Planning, seconds: float, changes: bool
) -> None:
    planning.profiled(5)
    choice = planning.plan_anew(step_of(PLANNED.with_version(3), 0.2), step_of(ELSEWHERE, seconds))
    assert (choice is not None) is changes


def test_each_profile_is_planned_by_once(planning: Planning) -> None:
    present, found = step_of(PLANNED, 0.2), step_of(PLANNED, 0.2)
    for step in (5, 50):
        planning.profiled(step)
        for _ in range(3):
            assert planning.plan_anew(present, found) is None
    assert planning.num_asked == 2
