"""A change of the network is noticed, and soon; noise is not a change."""

from __future__ import annotations

import math
import random
from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from trimtab.control.monitors.network import NetworkEstimator
from trimtab_api.netmon.view import NetworkView

GIGABIT = 1e9 / 8


def view(revision, latency=1e-3, bandwidth=GIGABIT, stale=False):
    return NetworkView(revision, latency, bandwidth, stale)


def watch(*views):
    estimator = NetworkEstimator(change=0.10)
    for now, seen in enumerate(views):
        estimator.observe(seen, float(now))
    return estimator


def cannot_tell(suspect):
    return None


def test_the_first_view_is_the_network():
    assert watch().network is None
    assert watch(view(1)).network.latency == 1e-3


def test_a_second_view_that_agrees_makes_a_change():
    estimator = watch(view(1), view(2), view(3, latency=5e-3))
    assert estimator.network.latency == 1e-3
    assert estimator.observe(view(4, latency=5.1e-3), 3.0)
    assert estimator.network.latency == 5.1e-3


def test_a_change_says_what_the_network_was_and_when_it_was_last_seen_so():
    change = watch(view(1), view(2), view(3, latency=5e-3)).observe(view(4, latency=5e-3), 3.0)
    assert (change.before.latency, change.confirmed_at) == (1e-3, 1.0)


def test_the_first_view_changes_nothing():
    assert watch().observe(view(1), 0.0) is None


def test_one_outlier_makes_none():
    estimator = watch(view(1), view(2), view(3, bandwidth=GIGABIT / 3), view(4))
    assert estimator.network.bandwidth == GIGABIT
    assert estimator.suspect is None


def test_a_lone_view_is_believed_at_once_when_the_exchanges_agree():
    estimator = watch(view(1), view(2, latency=5e-3))
    assert estimator.accept(1.0, lambda suspect: suspect.latency == 5e-3)
    assert estimator.network.latency == 5e-3


def test_a_lone_view_is_believed_after_a_second_unless_the_exchanges_object():
    estimator = watch(view(1), view(2, latency=5e-3))
    assert not estimator.accept(1.5, cannot_tell)
    assert not estimator.accept(9.0, lambda suspect: False)
    assert estimator.accept(2.0, cannot_tell)


def test_a_lone_view_that_differs_little_is_believed_only_once_the_bandwidth_must_have_been_tested_again():
    estimator = watch(view(1), view(2, bandwidth=0.85 * GIGABIT))
    assert not estimator.accept(10.5, cannot_tell)
    assert estimator.accept(11.0, cannot_tell)


def test_views_that_repeat_one_test_of_the_bandwidth_do_not_agree_with_it():
    repeated = [view(number, 1e-3 + 1e-6 * number, 0.85 * GIGABIT) for number in range(2, 9)]
    assert watch(view(1), *repeated).network.bandwidth == GIGABIT
    tested_anew = [view(number, bandwidth=(0.85 + number / 1000) * GIGABIT) for number in range(2, 9)]
    assert watch(view(1), *tested_anew).network.bandwidth < 0.9 * GIGABIT


# What a plan was chosen for -----------------------------------------------------------------------------


def decided_on(*views):
    estimator = watch(*views)
    estimator.decided()
    return estimator


def test_before_a_plan_was_chosen_any_network_is_another():
    assert not watch().has_moved(0.0)
    assert watch(view(1)).has_moved(0.0)
    assert not decided_on(view(1)).has_moved(0.0)


def test_a_change_leaves_it_at_once():
    estimator = decided_on(view(1))
    for now in (1.0, 2.0):
        estimator.observe(view(2, latency=5e-3), now)
    assert estimator.has_moved(2.0)


def test_the_views_that_follow_soon_tell_what_it_was():
    """The first was 8% off; nothing has changed since, whatever two views say beside each other."""
    estimator = decided_on(view(1, latency=1.08e-3))
    for second in range(2, 40):
        estimator.observe(view(second, latency=1e-3 if second < 30 else 0.96e-3), float(second))
    assert not estimator.has_moved(1000.0)


def drifted():
    """After a minute at 1 ms the latency rises by 0.5% a second, which no view differs by from the last."""
    estimator = decided_on(view(1))
    for second in range(2, 60):
        estimator.observe(view(second), float(second))
    moved_at = None
    for second in range(60, 120):
        estimator.observe(view(second, latency=1e-3 * 1.005 ** (second - 60)), float(second))
        if moved_at is None and estimator.network.latency > 1.1e-3:
            moved_at = float(second)
    return estimator, moved_at


def test_a_drift_leaves_it_once_it_has_lasted():
    estimator, moved_at = drifted()
    assert not estimator.has_moved(moved_at + 9.9)
    assert estimator.has_moved(moved_at + 10.1)


def test_stale_and_impossible_views_are_ignored():
    estimator = watch(view(1), view(2, latency=9e-3, stale=True), view(3, latency=0.0), view(4, bandwidth=0.0))
    assert estimator.network.latency == 1e-3
    assert estimator.suspect is None


@pytest.mark.parametrize("told", [{"latency": 1e6}, {"latency": math.nan}, {"bandwidth": 1e-3}, {"bandwidth": 1e20}])
def test_figures_that_no_network_has_are_ignored(told):
    estimator = watch(view(1), *(view(number, **told) for number in range(2, 9)))
    assert estimator.network.latency == 1e-3
    assert estimator.suspect is None


def test_state_survives():
    estimator, restored = watch(view(1), view(2, latency=1.02e-3)), NetworkEstimator(0.10)
    restored.load_state_dict(estimator.state_dict())
    assert restored.network == estimator.network


@settings(max_examples=examples(50), deadline=None)
@given(seed=st.integers(0, 10**6), noise=st.floats(0.0, 0.03))
def test_noise_on_an_unchanged_network_never_makes_a_change(seed, noise):
    """Ten minutes of a view a second, each off by 3%."""
    rng, estimator = random.Random(seed), NetworkEstimator(0.10)
    estimator.observe(view(0), 0.0)
    for second in range(1, 600):
        noisy = view(second, 1e-3 * exp(rng.gauss(0, noise)), GIGABIT * exp(rng.gauss(0, noise)))
        assert not estimator.observe(noisy, float(second))


@settings(max_examples=examples(50), deadline=None)
@given(seed=st.integers(0, 10**6), factor=st.floats(1.5, 50), slower=st.booleans())
def test_a_real_change_is_noticed_at_the_second_view(seed, factor, slower):
    rng, estimator = random.Random(seed), NetworkEstimator(0.10)
    latency = 1e-3 * (factor if slower else 1 / factor)
    for second in range(8):
        estimator.observe(view(second, 1e-3 * exp(rng.gauss(0, 0.03))), float(second))
    assert not estimator.observe(view(8, latency), 8.0)
    assert estimator.observe(view(9, latency * 1.03), 9.0)


@given(st.lists(st.floats(0.2, 5.0), min_size=1, max_size=30))
def test_after_a_decision_the_network_has_not_moved_however_it_had(factors):
    estimator = watch(view(0))
    estimator.decided()
    for now, factor in enumerate(factors, 1):
        estimator.observe(view(now, bandwidth=factor * GIGABIT), float(now))
    estimator.decided()
    assert not estimator.has_moved(1e6)
