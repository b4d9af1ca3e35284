"""Whose turn it is, and what may still be spent."""

from hypothesis import given, settings
from hypothesis import strategies as st
from trimtab_netmon.coordination.probe_schedule import (
    BUDGET_HORIZON,
    MOST_DOUBLED,
    Budget,
    ProbeInterval,
    batches,
    expected,
)

UNLIMITED = 1e18


@given(st.integers(2, 40))
def test_a_round_measures_everyone_both_ways_and_nobody_twice_at_once(num_workers):
    result = batches(num_workers)
    for batch in result:
        hosts = [host for pair in batch for host in pair]
        assert len(hosts) == len(set(hosts))
    pairs = [pair for batch in result for pair in batch]
    assert sorted(source for source, _ in pairs) == list(range(num_workers))
    assert sorted(target for _, target in pairs) == list(range(num_workers))
    assert len(result) <= 3


def test_one_worker_has_nobody_to_test():
    assert batches(1) == []


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 2.0), min_size=20, max_size=60), st.floats(0.01, 0.5))
def test_routine_tests_stay_within_the_budget(durations, share):
    budget, now, spent = Budget(2, share, UNLIMITED, 0.0), 0.0, 0.0
    for duration in durations:
        while not budget.allows_periodic((0, 1), now):
            now += 1.0
        now += duration
        spent += duration
        budget.spend((0, 1), duration, 1.0, now)
    assert spent <= share * (now + BUDGET_HORIZON / 2) + max(durations)


def test_what_routine_leaves_pays_for_rounds_out_of_turn():
    budget = Budget(2, 0.02, UNLIMITED, 0.0)
    while budget.allows_periodic((0, 1), 0.0):
        budget.spend((0, 1), 0.4, 1.0, 0.0)
    rounds = 0
    while budget.allows_sweep(0.0):
        budget.spend((0, 1), 0.8, 1.0, 0.0)
        rounds += 1
    assert rounds >= 3
    assert budget.allows_sweep(100.0)


@given(st.integers(3, 12), st.data())
def test_a_link_that_cannot_be_tested_is_replaced_by_others_of_its_hosts(num_workers, data):
    links = [(i, j) for i in range(num_workers) for j in range(num_workers) if i != j]
    broken = data.draw(st.sets(st.sampled_from(links), max_size=1))
    result = batches(num_workers, lambda pair: pair not in broken)
    pairs = [pair for batch in result for pair in batch]
    assert not broken & set(pairs)
    assert {source for source, _ in pairs} == {target for _, target in pairs} == set(range(num_workers))


def test_no_host_is_left_alone_for_long_while_its_balance_recovers():
    budget = Budget(2, 0.02, UNLIMITED, 0.0)
    budget.spend((0, 1), 11.5, 1.0, 0.0)
    budget.spend((0, 1), 0.4, 1.0, 0.0)
    looks = [
        now for now in range(300) if budget.allows_periodic((0, 1), now) and not budget.spend((0, 1), 0.4, 1.0, now)
    ]
    assert 3 <= len(looks) <= 8
    assert budget.allows_sweep(300.0)


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


def test_what_is_in_doubt_may_be_tested_while_anything_is_left():
    budget = Budget(2, 0.02, UNLIMITED, 0.0)
    budget.spend((0, 1), 11.9, 1.0, 0.0)
    assert budget.allows_recheck((0, 1), 0.0)
    assert not budget.allows_periodic((0, 1), 0.0)
    budget.spend((0, 1), 0.2, 1.0, 0.0)
    assert not budget.allows_recheck((0, 1), 0.0)


@settings(deadline=None)
@given(st.lists(st.floats(1e6, 2e9), min_size=20, max_size=200), st.floats(5e9, 1e12))
def test_no_24_hours_see_more_than_the_budget_in_bytes_and_one_test(sizes, per_day):
    budget, now, spent = Budget(2, 0.5, per_day, 0.0), 0.0, []
    for size in sizes:
        while not budget.allows_recheck((0, 1), now):
            now += 60.0
        budget.spend((0, 1), 0.01, size, now)
        spent.append((now, size))
    for at, _ in spent:
        assert sum(size for when, size in spent if at <= when < at + 86400) <= per_day + max(sizes)


def test_bytes_alone_can_exhaust_the_budget():
    budget = Budget(3, 0.5, 2e9, 0.0)
    budget.spend((0, 1), 0.01, 0.6e9, 0.0)
    assert not budget.allows_periodic((0, 1), 0.0), "half is left for when something changes"
    assert budget.allows_recheck((0, 1), 0.0)
    budget.spend((0, 1), 0.01, 0.6e9, 0.0)
    assert not budget.allows_recheck((0, 2), 0.0)
    assert not budget.allows_sweep(0.0)
    assert budget.allows_sweep(86400.0)


@given(st.integers(2, 32), st.floats(0.1, 60.0))
def test_the_interval_doubles_while_tests_confirm_until_every_link_has_a_turn_in_six_hours(num_workers, shortest):
    num_links = num_workers * (num_workers - 1)
    interval, before = ProbeInterval(shortest, num_links), shortest
    for _ in range(100 * 8):
        interval.confirm()
        assert before <= interval.seconds <= max(2 * before, shortest)
        before = interval.seconds
    assert interval.seconds <= MOST_DOUBLED * shortest
    assert interval.seconds * num_links <= max(6 * 3600.0, shortest * num_links) + 1e-6
    interval.reset()
    assert interval.seconds == shortest


@given(st.sampled_from([(0, 1), (1, 0), (2, 1)]), st.sampled_from([(100.0, 0.0), (0.0, 1e6)]))
def test_a_test_is_booked_on_both_its_hosts_and_on_no_other(pair, cost):
    budget = Budget(4, 0.1, 1e6, 0.0)
    budget.spend(pair, *cost, 0.0)
    for other in {0, 1, 2, 3} - set(pair):
        for host in pair:
            assert not budget.allows_recheck((other, host), 0.0)
    (first, second) = {0, 1, 2, 3} - set(pair)
    assert budget.allows_recheck((first, second), 0.0)
