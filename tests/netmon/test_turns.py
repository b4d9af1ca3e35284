"""Whose turn it is, and what may still be spent."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trimtab_netmon.turns import BUDGET_HORIZON, Budget, expected, next_pair, waves


@given(st.integers(2, 40))
def test_a_round_measures_everyone_both_ways_and_nobody_twice_at_once(num_workers):
    result = waves(num_workers)
    for wave in result:
        hosts = [host for pair in wave for host in pair]
        assert len(hosts) == len(set(hosts))
    pairs = [pair for wave in result for pair in wave]
    assert sorted(source for source, _ in pairs) == list(range(num_workers))
    assert sorted(target for _, target in pairs) == list(range(num_workers))
    assert len(result) <= 3


def test_one_worker_has_nobody_to_test():
    assert waves(1) == []


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 2.0), min_size=20, max_size=60), st.floats(0.01, 0.5))
def test_routine_tests_stay_within_the_budget(durations, share):
    budget, now, spent = Budget(2, share, 0.0), 0.0, 0.0
    for duration in durations:
        while not budget.allows_background((0, 1), now):
            now += 1.0
        now += duration
        spent += duration
        budget.spend((0, 1), duration, now)
    assert spent <= share * (now + BUDGET_HORIZON / 2) + max(durations)


def test_what_routine_leaves_pays_for_rounds_out_of_turn():
    budget = Budget(2, 0.02, 0.0)
    while budget.allows_background((0, 1), 0.0):
        budget.spend((0, 1), 0.4, 0.0)
    rounds = 0
    while budget.allows_round(0.0):
        budget.spend((0, 1), 0.8, 0.0)
        rounds += 1
    assert rounds >= 3
    assert budget.allows_round(100.0)


@given(st.dictionaries(st.sampled_from([(0, 1), (1, 0), (1, 2)]), st.floats(0, 100)))
def test_the_oldest_figure_is_next_and_the_missing_one_before_all(tested_at):
    pairs = [(0, 1), (1, 0), (1, 2)]
    chosen = next_pair(pairs, tested_at)
    missing = [pair for pair in pairs if pair not in tested_at]
    if missing:
        assert chosen == missing[0]
    else:
        assert tested_at[chosen] == pytest.approx(min(tested_at.values()))


def test_a_test_expects_what_the_link_carried_unless_that_was_superseded():
    found = {(0, 1): 10.0, (1, 2): 80.0, (2, 3): 50.0}
    assert expected((1, 2), found, [(0, 1), (1, 2), (2, 3)]) == 80
    assert expected((1, 2), found, [(2, 3)]) == 50
    assert expected((1, 2), found, []) == 80, "what it once carried, for want of anything newer"


def test_a_link_never_tested_should_carry_the_least_that_its_hosts_links_do():
    found = {(0, 1): 10.0, (2, 3): 80.0, (3, 2): 60.0}
    assert expected((1, 3), found, list(found)) == 10
    assert expected((4, 3), found, list(found)) == 60
    assert expected((4, 5), found, list(found)) == 0, "nothing is known"
