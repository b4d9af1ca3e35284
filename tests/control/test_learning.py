"""What steps teach, what a change of the network takes back, and what exchanges say of a suspected network."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trimtab.control.learning import Learner
from trimtab.control.monitors.gain import GainWatch
from trimtab.control.monitors.network import Network, NetworkChange
from trimtab.control.types import ModelFacts, StepReport
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.timetable import Iteration, Send, Timetable

PLAN = Plan(0.01, "all-gather")
FAST, SLOW = Network(1, 1e-3, 1e8), Network(2, 20e-3, 1e7)


@pytest.fixture
def learner():
    return Learner(ModelFacts(10_000_000, (10_000_000,), 4))


def report(step=1, exchange=0.1):
    return StepReport(step, PLAN, exchange + 0.1, 0.09, 0.01, exchange, 1000, 6, 0.3, 1.0, True)


def run(learner, ends, exchange=0.1):
    """Steps that end at these times; the first is of a plan that has just changed."""
    for end in ends:
        learner.steps.add(report(exchange=exchange), end)
        learner.exchange(report(exchange=exchange), FAST)


def predicted(learner):
    return learner.predictor.sync_seconds(PLAN, FAST.latency, FAST.beta)


def test_an_exchange_is_compared_with_what_was_predicted_before_it_was_learned_from(learner):
    before = predicted(learner)
    assert learner.exchange(report(exchange=0.5), FAST) == before
    assert learner.exchange(report(exchange=0.5), FAST) > before


def test_without_a_network_nothing_is_learned_of_exchanges(learner):
    before = predicted(learner)
    assert learner.exchange(report(exchange=0.5), None) == 0.5
    assert predicted(learner) == before


def test_a_gain_is_learned_once_it_has_settled(learner):
    gain = GainWatch(0.1, window=5)
    for step in range(6):
        assert learner.predictor.knows_gain(PLAN, step) is (step >= 5)
        learner.steps.add(report(step), float(step))
        learner.steps.add(report(step), float(step))
        gain.observe(0.3)
        learner.compression(report(step))
        learner.gain(report(step), gain)


def test_what_was_learned_since_the_network_was_last_seen_is_taken_back(learner):
    run(learner, [1.0, 2.0, 3.0])
    steady = predicted(learner)
    run(learner, [4.0, 5.0, 6.0, 7.0], exchange=0.5)
    assert predicted(learner) > 2 * steady
    learner.network_changed(NetworkChange(FAST, confirmed_at=3.5), now=8.0)
    assert predicted(learner) == pytest.approx(steady, rel=0.05)


def test_exchanges_that_share_an_interface_tell_nothing_and_take_back_nothing(learner):
    sends = tuple(Send(bucket, 0, link=bucket) for bucket in range(2))
    one_by_one = replace(PLAN, fusion=FusionPlan((0, 5_000_000)))
    side_by_side = replace(one_by_one, schedule="priority", timetable=Timetable((), (Iteration(sends, 0),)))

    def predicted():
        return learner.predictor.sync_seconds(one_by_one, FAST.latency, FAST.beta)

    for _ in range(3):
        learner.exchange(replace(report(exchange=0.5), plan=one_by_one), FAST)
    learned = predicted()
    for end in (4.0, 5.0, 6.0, 7.0):
        told = replace(report(exchange=5.0), plan=side_by_side)
        learner.steps.add(told, end)
        assert learner.exchange(told, FAST) == 5.0, "no drift"
    assert predicted() == learned
    assert learner.speaks_for(SLOW, FAST, side_by_side, since=0.0) is None
    learner.network_changed(NetworkChange(FAST, confirmed_at=3.5), now=8.0)
    assert predicted() == learned


def test_exchanges_speak_for_the_network_that_they_fit(learner):
    slow = report(exchange=learner.predictor.sync_seconds(PLAN, SLOW.latency, SLOW.beta))
    for end in (1.0, 2.0, 3.0):
        assert learner.speaks_for(SLOW, FAST, PLAN, since=0.0) is None, "the first of a plan and one more are too few"
        learner.steps.add(slow, end)
    assert learner.speaks_for(SLOW, FAST, PLAN, since=0.0) is True
    assert learner.speaks_for(FAST, SLOW, PLAN, since=0.0) is False
    assert learner.speaks_for(SLOW, FAST, PLAN, since=2.0) is None, "the present network began after the first"


ROUNDS = Plan(0.01, "all-gather", source="update:steps=16")


def a_round(exchange, hidden):
    """The last step of a round; while its last rank still computed, others sent for up to ``hidden`` seconds."""
    return StepReport(1, ROUNDS, 0.1, 0.09, 0.01, exchange, 1000, 6, 0.3, 1.0, True, hidden_seconds=hidden)


def test_a_round_whose_exchange_may_have_been_hidden_teaches_only_how_short_or_long_it_cannot_have_been(learner):
    before = predicted(learner)
    for _ in range(20):
        learner.exchange(a_round(before / 100, hidden=2 * before), FAST)
    assert predicted(learner) == before, "the rank that came last found all there"
    for _ in range(20):
        learner.exchange(a_round(before / 100, hidden=before / 4), FAST)
    assert before / 5 < predicted(learner) < before / 2
    for _ in range(20):
        learner.exchange(a_round(3 * before, hidden=before / 4), FAST)
    assert predicted(learner) > 2 * before


def test_a_round_that_fits_two_networks_speaks_for_neither(learner):
    fast, slow = (learner.predictor.sync_seconds(ROUNDS, each.latency, each.beta) for each in (FAST, SLOW))
    for end in (1.0, 2.0, 3.0):
        learner.steps.add(a_round(fast, hidden=2 * slow), end)
    assert learner.speaks_for(SLOW, FAST, ROUNDS, since=0.0) is None
    for end in (4.0, 5.0):
        learner.steps.add(a_round(fast, hidden=0.1 * fast), end)
    assert learner.speaks_for(SLOW, FAST, ROUNDS, since=0.0) is False
