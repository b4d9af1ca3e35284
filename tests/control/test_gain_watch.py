"""A change of the gain is noticed; noise is not a change."""

from __future__ import annotations

import random
from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from trimtab.control.monitors.gain import GainWatch


def gain_watch(*gains):
    watched = GainWatch(change=0.10, window=20)
    for gain in gains:
        watched.observe(gain)
    return watched


def test_the_gain_is_settled_after_a_window():
    assert gain_watch(*[0.3] * 19).settled is None
    assert gain_watch(*[0.3] * 20).settled == pytest.approx(0.3)


def test_a_steady_gain_has_not_moved_and_a_falling_one_has():
    assert not gain_watch(*[0.3] * 100).moved
    assert gain_watch(*[0.3] * 30, *[0.2] * 20).moved


def test_what_has_been_looked_at_has_not_moved_since():
    watched = gain_watch(*[0.3] * 30, *[0.2] * 40)
    watched.look()
    assert not watched.moved


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_noise_of_single_steps_does_not_move_the_average(seed):
    rng, watched = random.Random(seed), GainWatch(0.10, 20)
    for _ in range(500):
        watched.observe(0.2 * exp(rng.gauss(0, 0.05)))
        assert not watched.moved
