"""What one rank measured of a step, once all ranks have told each other when they came to its exchange."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trimtab.control.types import StepReport
from trimtab.engine.exchange.consensus import StepConsensus
from trimtab.plan.plan import Plan
from trimtab.session.step_metrics import Rounds, completed

STEP = StepReport(1, Plan(0.01, "all-gather"), 0.5, 0.2, 0.01, 0.3, 1000, 6, None, 1.0, True)
ROUND = replace(STEP, plan=Plan(0.01, "all-gather", source="update:steps=4"))


def told(arrivals, exchanges):
    return StepConsensus(True, False, False, 0.4, 1.0, arrivals, exchanges)


def test_a_step_is_timed_by_the_rank_that_came_last_and_computes_as_long_as_that_one():
    seen = completed(STEP, told((0.2, 0.35, 0.3), (0.3, 0.1, 0.15)), rank=0)
    assert seen.collective_seconds == 0.1
    assert seen.compute_seconds == pytest.approx(0.2 + 0.15)
    assert seen.hidden_seconds == 0.0


def test_in_a_round_a_rank_is_late_by_all_of_its_steps_and_may_find_there_what_it_waits_for():
    seen = completed(ROUND, told((0.8, 1.2, 1.0), (0.5, 0.001, 0.2)), rank=0)
    assert seen.compute_seconds == pytest.approx(0.2 + 0.4 / 4)
    assert seen.collective_seconds == 0.001
    assert seen.hidden_seconds == pytest.approx(0.4)
    assert seen.exchange_seconds(0.15) == 0.15
    assert seen.exchange_seconds(0.9) == pytest.approx(0.401)


def test_a_round_that_another_plan_has_ended_is_told_of_as_neither():
    rounds, consensus = Rounds(0), told((0.8, 1.2, 1.0), (0.5, 0.001, 0.2))
    for step in range(4):
        rounds.add(replace(ROUND, step=step), consensus if step == 3 else None)
    for step in range(4, 7):
        rounds.add(replace(ROUND, step=step), None)
    assert rounds.add(replace(ROUND, step=7, plan=replace(ROUND.plan, ratio=0.1)), consensus) is None
    assert rounds.has_ended
    assert rounds.loss is None
    assert rounds.end_early(consensus) is None


def test_a_round_that_is_cut_short_tells_of_the_whole_one_before_it_and_no_other_does_later():
    rounds, consensus = Rounds(0), told((0.8, 1.2, 1.0), (0.5, 0.001, 0.2))
    for step in range(4):
        assert rounds.add(replace(ROUND, step=step), consensus if step == 3 else None) is None
    assert rounds.add(replace(ROUND, step=4), None) is None
    assert rounds.end_early(consensus) == completed(replace(ROUND, step=3), consensus, rank=0)
    assert rounds.end_early(consensus) is None
    assert rounds.has_ended
