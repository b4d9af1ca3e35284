"""How long trials may take. Until some have told, they are taken to overrun their prediction by a quarter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.control.exploration import Exploration


def test_trials_earn_their_share_of_the_time_since_the_last_ones():
    exploration = Exploration(0.1)
    assert exploration.budget(50.0) == 0.0, "training has not begun"
    exploration.begin(100.0)
    assert exploration.budget(150.0) == pytest.approx(5.0 / 1.25)
    exploration.ended(3.0, 153.0)
    assert exploration.budget(163.0) == pytest.approx(1.0 / 1.25)


def test_solving_is_taken_off_what_trials_may_take_and_so_is_the_decision_that_follows_them():
    exploration = Exploration(0.1)
    exploration.begin(0.0)
    exploration.solved(0.5)
    exploration.solved(0.25)
    assert exploration.budget(100.0) == pytest.approx((10.0 - 0.75 - 0.5) / 1.25)


def test_trials_that_took_longer_than_predicted_leave_the_next_so_much_less():
    exploration = Exploration(0.1)
    exploration.begin(0.0)
    exploration.ask(1.0)
    exploration.ended(2.0, 40.0)
    assert exploration.budget(140.0) == pytest.approx(10.0 / 2.0)
    exploration.ask(5.0)
    exploration.ended(4.0, 150.0)  # they were early
    assert exploration.budget(250.0) == pytest.approx(10.0)


def test_no_trials_are_asked_for_while_others_are_on_their_way():
    exploration = Exploration(0.1)
    exploration.begin(0.0)
    exploration.ask(1.0)
    assert exploration.budget(1000.0) == 0.0
    exploration.ended(0.0, 1000.0)  # they were refused
    assert exploration.budget(1010.0) == pytest.approx(1.0 / 1.25)


@given(
    share=st.floats(0.01, 0.5),
    waits=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30),
    taken=st.floats(0.0, 1.0),
    solving=st.floats(0.0, 0.1),
)
def test_trials_that_keep_to_the_budget_and_what_is_solved_never_pass_their_share(share, waits, taken, solving):
    exploration, now, spent = Exploration(share), solving / share, solving
    exploration.begin(0.0)
    exploration.solved(solving)
    for wait in waits:
        now += wait
        if exploration.budget(now) > 0:
            seconds = taken * exploration.budget(now)
            exploration.ask(seconds)
            now += seconds
            exploration.ended(seconds, now)
            exploration.solved(solving)
            spent += seconds + solving
        assert spent <= share * now + 1e-9
