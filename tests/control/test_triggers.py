"""Which reason to decide comes first, and when each is due."""

from __future__ import annotations

import pytest
from trimtab.control.triggers import Triggers


def due(triggers, step, warm=True, network=False, gain=False):
    return triggers.due(step, is_warmed_up=warm, has_network_moved=network, has_gain_moved=gain)


@pytest.fixture
def triggers():
    """After the warm-up and its second look, at step 20."""
    warm = Triggers()
    assert [due(warm, 0), due(warm, 20)] == ["warm-up", "warm-up"]
    return warm


def test_nothing_comes_before_the_warm_up_has_ended():
    cold = Triggers()
    cold.queue("trials")
    assert due(cold, 3, warm=False, network=True, gain=True) is None
    assert due(cold, 4) == "warm-up"
    assert due(cold, 5) == "trials"


def test_the_choice_after_the_warm_up_and_that_for_a_new_network_are_looked_at_again_eight_steps_later(triggers):
    assert due(triggers, 30, network=True) == "network"
    assert [step for step in range(31, 50) if due(triggers, step) == "network"] == [38]


def test_a_gain_waits_while_a_second_look_is_near(triggers):
    assert due(triggers, 21, gain=True) == "gain"
    due(triggers, 30, network=True)
    assert [due(triggers, step, gain=True) for step in (31, 38, 39)] == [None, "network", "gain"]


def test_what_is_queued_comes_before_a_network_and_a_network_before_a_second_look(triggers):
    triggers.request_decision("measured", 25)
    triggers.queue("trials")
    assert due(triggers, 25, network=True) == "trials"
    assert due(triggers, 26, network=True) == "network"
    assert [due(triggers, step) for step in (27, 34)] == [None, "network"], "it is the network's second look by then"


def test_after_a_guard_the_next_decision_is_the_guards_own_and_no_second_look_follows(triggers):
    triggers.request_decision("measured", 25)
    triggers.fell_back()
    assert [due(triggers, step) for step in (40, 41, 60)] == ["guard", None, None]


def test_each_reason_is_given_once(triggers):
    triggers.queue("gain")
    assert [due(triggers, 21), due(triggers, 22)] == ["gain", None]


def test_sources_that_were_not_open_to_the_first_choice_are_weighed_two_steps_after_they_are():
    triggers = Triggers()
    assert due(triggers, 0) == "warm-up"  # where dense steps are slow: by what is assumed
    triggers.allow_local_sgd(0)
    assert [due(triggers, step) for step in (1, 2, 3, 8)] == [None, "warm-up", None, "warm-up"]


def test_they_are_weighed_by_the_first_choice_where_that_is_still_to_come():
    triggers = Triggers()
    triggers.allow_local_sgd(0)
    assert [due(triggers, step, warm=step > 4) for step in range(1, 8)] == [None] * 4 + ["warm-up", None, None]
