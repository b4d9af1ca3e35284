"""A static plan's buffers follow what is profiled, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from plans import FACTS
from trimtab.control.decision import Prediction
from trimtab.control.learning import Learner
from trimtab.control.monitors.network import Network
from trimtab.control.search.selection import Choice
from trimtab.control.static_controller import NOMINAL_NETWORK, StaticPolicy
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import Profile
from trimtab.plan.timetable import Iteration, Send, Timetable

KNOWN = Network(7, 2e-3, 1e7)
BEGUN_WITH = Plan(0.01, "all-gather", fusion=FusionPlan((0,)))
PLANNED = replace(BEGUN_WITH, fusion=FusionPlan((0, 400)))
IN_TWO = Timetable((), (Iteration((Send(0, 0), Send(1, 0)), update=0),))
ELSEWHERE = replace(BEGUN_WITH, fusion=FusionPlan((0, 600)))


def step_of(plan: Plan, seconds: float) -> Prediction:
    return Prediction(plan, 0.0, 0.0, 1.0, 1.0, seconds)


class Planning:
    """A policy whose planner finds what a test says, and how often it was asked."""

    def __init__(self, begun_with: Plan = BEGUN_WITH) -> None:
        self.begun_with, self.learner = begun_with, Learner(FACTS)
        self.policy = StaticPolicy(self.learner, begun_with)
        self.num_asked = 0

    def profiled(self, step: int) -> None:
        self.learner.predictor.profile = Profile(step, 3, BEGUN_WITH, 0.0, (), (), (), None, None, None)

    def look(self, present: Prediction, found: Prediction, *, is_network_known: bool = False) -> Choice | None:
        def renew(network: Network) -> Any:
            self.num_asked += 1
            assert network == (KNOWN if is_network_known else NOMINAL_NETWORK)
            return SimpleNamespace(dense=present, present=present, first=lambda: found)

        looked = self.policy.look(renew, KNOWN if is_network_known else None, has_network_moved=False)
        return None if looked is None else looked[1]


@pytest.fixture
def planning() -> Planning:
    return Planning()


def test_without_a_profile_nobody_is_asked(planning: Planning) -> None:
    assert planning.look(step_of(BEGUN_WITH, 0.2), step_of(PLANNED, 0.1)) is None
    assert planning.num_asked == 0


def test_the_first_profile_replaces_buffers_that_none_was_behind_even_by_slower_ones(planning: Planning) -> None:
    planning.profiled(5)
    choice = planning.look(step_of(BEGUN_WITH, 0.2), step_of(PLANNED, 0.21))
    assert choice is not None
    assert choice.chosen.plan == PLANNED


@pytest.mark.parametrize(("seconds", "changes"), [(0.19, False), (0.189, True)])
def test_planned_buffers_are_left_for_steps_shorter_by_a_twentieth(
    planning: Planning, seconds: float, changes: bool
) -> None:
    planning.profiled(5)
    choice = planning.look(step_of(PLANNED.with_version(3), 0.2), step_of(ELSEWHERE, seconds))
    assert (choice is not None) is changes


def test_each_profile_is_planned_by_once(planning: Planning) -> None:
    present, found = step_of(PLANNED, 0.2), step_of(PLANNED, 0.2)
    for step in (5, 50):
        planning.profiled(step)
        for _ in range(3):
            assert planning.look(present, found) is None
    assert planning.num_asked == 2


def test_what_was_cut_too_fine_is_planned_anew_once_without_another_profile(planning: Planning) -> None:
    planning.profiled(5)
    planning.look(step_of(BEGUN_WITH, 0.2), step_of(PLANNED, 0.1))
    planning.policy.parts_underperform()
    in_parts = replace(PLANNED.with_version(1), schedule="priority", timetable=IN_TWO)
    choice = planning.look(step_of(in_parts, 0.1), step_of(BEGUN_WITH, 0.2))
    assert choice is not None
    assert choice.chosen.plan == BEGUN_WITH
    assert planning.look(step_of(BEGUN_WITH.with_version(2), 0.1), step_of(ELSEWHERE, 0.01)) is None
    assert planning.num_asked == 2


def test_what_a_plan_that_stays_should_take_is_said_once_when_steps_were_profiled_on_a_known_network(
    planning: Planning,
) -> None:
    present = step_of(PLANNED, 0.2)
    assert planning.look(present, present, is_network_known=True) is None
    planning.profiled(5)
    assert planning.look(present, present) is None
    said = planning.look(present, present, is_network_known=True)
    assert said is not None
    assert (said.is_change, said.chosen, said.dense) == (False, present, present)
    assert planning.num_asked == 2, "for the profile, and for what is known of the network since"
    planning.profiled(50)
    assert planning.look(present, present, is_network_known=True) is None


def test_new_buffers_on_a_known_network_say_it_already(planning: Planning) -> None:
    planning.profiled(5)
    found = step_of(PLANNED, 0.1)
    said = planning.look(step_of(BEGUN_WITH, 0.2), found, is_network_known=True)
    assert said is not None
    assert said.is_change
    assert planning.look(found, found, is_network_known=True) is None


def test_of_dense_there_is_nothing_to_say() -> None:
    planning = Planning(Plan(1.0, "dense-ring", fusion=FusionPlan((0,))))
    planning.profiled(5)
    present = step_of(planning.begun_with, 0.2)
    assert planning.look(present, present, is_network_known=True) is None
