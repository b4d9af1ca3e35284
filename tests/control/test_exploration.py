"""How long trials may take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.control.exploration import Exploration


def test_trials_earn_their_share_of_the_time_since_the_last_ones():
    exploration = Exploration(0.1)
    assert exploration.budget(50.0) == 0.0, "training has not begun"
    exploration.begin(100.0)
    assert exploration.budget(150.0) == pytest.approx(5.0)
    exploration.ended(3.0, 153.0)
    assert exploration.budget(163.0) == pytest.approx(1.0)


def test_no_trials_are_asked_for_while_others_are_on_their_way():
    exploration = Exploration(0.1)
    exploration.begin(0.0)
    exploration.ask()
    assert exploration.budget(1000.0) == 0.0
    exploration.ended(0.0, 1000.0)  # they were refused
    assert exploration.budget(1010.0) == pytest.approx(1.0)


@given(
    share=st.floats(0.01, 0.5),
    waits=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30),
    taken=st.floats(0.0, 1.0),
)
def test_trials_that_keep_to_the_budget_never_pass_their_share(share, waits, taken):
    exploration, now, spent = Exploration(share), 0.0, 0.0
    exploration.begin(now)
    for wait in waits:
        now += wait
        seconds = taken * max(0.0, exploration.budget(now))
        exploration.ask()
        now, spent = now + seconds, spent + seconds
        exploration.ended(seconds, now)
        assert spent <= share * now + 1e-9
