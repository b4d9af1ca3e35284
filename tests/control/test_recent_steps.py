"""Which steps tell what their plan takes on the present network."""

from __future__ import annotations

from dataclasses import replace
from math import nan

from trimtab.control.monitors.recent_steps import RecentSteps
from trimtab.control.types import StepReport
from trimtab.plan.plan import Plan

PLAN = Plan(0.01, "all-gather")
REPORT = StepReport(0, PLAN, 0.2, 0.1, 0.01, 0.09, 1000, 6, 0.5, 1.0, True)


def kept(steps, reports):
    return [steps.add(report, float(n)) for n, report in enumerate(reports)]


def test_the_first_step_under_a_plan_carries_the_change_itself():
    other = replace(REPORT, plan=PLAN.with_version(1))
    assert kept(RecentSteps(), [REPORT, REPORT, other, other, REPORT]) == [False, True, False, True, False]


def test_a_step_that_was_dropped_tells_nothing():
    dropped, nameless = replace(REPORT, finite=False), replace(REPORT, gain=nan)
    assert kept(RecentSteps(), [REPORT, dropped, nameless, REPORT]) == [False, False, False, True]


def test_the_first_three_after_a_change_of_network_tell_nothing_of_it():
    steps = RecentSteps()
    kept(steps, [REPORT] * 3)
    steps.network_changed()
    assert kept(steps, [REPORT] * 5) == [False, False, False, True, True]


def test_steps_are_found_by_plan_and_by_when_they_began():
    steps = RecentSteps()
    kept(steps, [replace(REPORT, step_seconds=0.5)] * 6)  # they end at 1, 2, ... 5
    assert [step.step_seconds for step in steps.since(PLAN, 3.0)] == [0.5, 0.5]
    assert steps.since(PLAN.with_version(1), 0.0) == []
    assert len(steps.under(PLAN)) == 5
