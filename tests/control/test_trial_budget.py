"""How long trials may take. Until some have told, they are taken to overrun their prediction by a quarter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.control.trial_budget import TrialBudget


def test_trials_earn_their_share_of_the_time_since_the_last_ones():
    budget = TrialBudget(0.1)
    assert budget.budget(50.0) == 0.0, "training has not begun"
    budget.begin(100.0)
    assert budget.budget(150.0) == pytest.approx(5.0 / 1.25)
    budget.ended(3.0, 153.0)
    assert budget.budget(163.0) == pytest.approx(1.0 / 1.25)


def test_solving_is_taken_off_what_trials_may_take_and_so_is_the_decision_that_follows_them():
    budget = TrialBudget(0.1)
    budget.begin(0.0)
    budget.solved(0.5)
    budget.solved(0.25)
    assert budget.budget(100.0) == pytest.approx((10.0 - 0.75 - 0.5) / 1.25)


def test_trials_that_took_longer_than_predicted_leave_the_next_so_much_less():
    budget = TrialBudget(0.1)
    budget.begin(0.0)
    budget.ask(1.0)
    budget.ended(2.0, 40.0)
    assert budget.budget(140.0) == pytest.approx(10.0 / 2.0)
    budget.ask(5.0)
    budget.ended(4.0, 150.0)  # they were early
    assert budget.budget(250.0) == pytest.approx(10.0)


def test_no_trials_are_asked_for_while_others_are_on_their_way():
    budget = TrialBudget(0.1)
    budget.begin(0.0)
    budget.ask(1.0)
    assert budget.budget(1000.0) == 0.0
    budget.ended(0.0, 1000.0)  # they were refused
    assert budget.budget(1010.0) == pytest.approx(1.0 / 1.25)


@given(
    share=st.floats(0.01, 0.5),
    waits=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30),
    taken=st.floats(0.0, 1.0),
    solving=st.floats(0.0, 0.1),
)
def test_trials_that_keep_to_the_budget_and_what_is_solved_never_pass_their_share(share, waits, taken, solving):
    budget, now, spent = TrialBudget(share), solving / share, solving
    budget.begin(0.0)
    budget.solved(solving)
    for wait in waits:
        now += wait
        if budget.budget(now) > 0:
            seconds = taken * budget.budget(now)
            budget.ask(seconds)
            now += seconds
            budget.ended(seconds, now)
            budget.solved(solving)
            spent += seconds + solving
        assert spent <= share * now + 1e-9
