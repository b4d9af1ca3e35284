"""How long trials may take. Until some have told, they are taken to overrun their prediction by a quarter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.control.trial_budget import TrialBudget


def test_trials_earn_their_share_of_the_time_since_the_last_ones():
    budget = TrialBudget(0.1)
    assert budget.available(50.0) == 0.0, "training has not begun"
    budget.begin(100.0)
    assert budget.available(150.0) == pytest.approx(5.0 / 1.25)
    budget.ended(3.0, 153.0)
    assert budget.available(163.0) == pytest.approx(1.0 / 1.25)


def test_solving_is_taken_off_what_trials_may_take_and_so_is_the_decision_that_follows_them():
    budget = TrialBudget(0.1)
    budget.begin(0.0)
    budget.decided(0.5)
    budget.decided(0.25)
    assert budget.available(100.0) == pytest.approx((10.0 - 0.75 - 0.5) / 1.25)


def test_a_decision_that_can_wait_does_while_those_before_it_took_more_than_a_twentieth_of_the_time():
    budget = TrialBudget(0.0)  # trials are off
    assert not budget.may_decide(50.0), "training has not begun"
    budget.begin(100.0)
    assert budget.may_decide(100.0)
    budget.decided(0.1)
    assert not budget.may_decide(101.9)
    assert budget.may_decide(102.0)
    budget.decided(0.1)
    assert not budget.may_decide(103.9)
    assert budget.may_decide(104.1)


def test_trials_that_took_longer_than_predicted_leave_the_next_so_much_less():
    budget = TrialBudget(0.1)
    budget.begin(0.0)
    budget.reserve(1.0)
    budget.ended(2.0, 40.0)
    assert budget.available(140.0) == pytest.approx(10.0 / 2.0)
    budget.reserve(5.0)
    budget.ended(4.0, 150.0)  # they were early
    assert budget.available(250.0) == pytest.approx(10.0)


def test_no_trials_are_asked_for_while_others_are_on_their_way():
    budget = TrialBudget(0.1)
    budget.begin(0.0)
    budget.reserve(1.0)
    assert budget.available(1000.0) == 0.0
    budget.ended(0.0, 1000.0)  # they were refused
    assert budget.available(1010.0) == pytest.approx(1.0 / 1.25)


@given(
    share=st.floats(0.01, 0.5),
    waits=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30),
    taken=st.floats(0.0, 1.0),
    solving=st.floats(0.0, 0.1),
)
def test_trials_that_keep_to_the_budget_and_what_is_solved_never_pass_their_share(share, waits, taken, solving):
    budget, now, spent = TrialBudget(share), solving / share, solving
    budget.begin(0.0)
    budget.decided(solving)
    for wait in waits:
        now += wait
        if budget.available(now) > 0:
            seconds = taken * budget.available(now)
            budget.reserve(seconds)
            now += seconds
            budget.ended(seconds, now)
            budget.decided(solving)
            spent += seconds + solving
        assert spent <= share * now + 1e-9
