"""Restarts pause longer the less came of the one before, and end where nothing comes of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from trimtab.launch.local.restart_policy import LONGEST_PAUSE_SECONDS, RestartPolicy
from trimtab_api.steps_of_attempts import MOST_WITHOUT_STEP


def test_two_restarts_in_a_row_that_fail_before_their_first_step_are_the_last() -> None:
    policy = RestartPolicy(max_restarts=1000)
    assert policy.failed(has_stepped=True) == 0.5
    assert policy.failed(has_stepped=False) == 1.0
    assert policy.failed(has_stepped=False) is None
    assert policy.last_words == (
        "after 2 restarts, the last 2 of which failed before their first step, as the next one would: "
    )


def test_a_step_in_between_begins_the_count_anew() -> None:
    policy = RestartPolicy(max_restarts=1000)
    pauses = [policy.failed(has_stepped) for has_stepped in (False, False, True, False, True, False, False)]
    assert pauses == [0.5, 1.0, 0.5, 1.0, 0.5, 1.0, None]


def test_no_more_than_max_restarts() -> None:
    policy = RestartPolicy(max_restarts=2)
    assert [policy.failed(has_stepped=True) for _ in range(3)] == [0.5, 0.5, None]
    assert policy.last_words == "after 2 restarts, the most that spec.maxRestarts allows: "
    never = RestartPolicy(max_restarts=0)
    assert never.failed(has_stepped=True) is None
    assert never.last_words == ""


@given(st.lists(st.booleans(), max_size=50), st.integers(0, 20))
def test_pauses_are_bounded_and_restarts_end(attempts: list[bool], most: int) -> None:
    policy = RestartPolicy(most)
    for has_stepped in attempts:
        pause = policy.failed(has_stepped)
        if pause is None:
            assert policy.num_restarts == most or policy.num_without_step == MOST_WITHOUT_STEP
            break
        assert 0 < pause <= LONGEST_PAUSE_SECONDS
    assert policy.num_restarts <= most
