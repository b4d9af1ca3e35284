"""By how much a loss falls from one profile to the next."""

from __future__ import annotations

import random

import pytest
from trimtab.engine.profiling.loss_monitor import LossFall


def test_a_straight_loss_falls_by_its_slope_whenever_it_is_asked() -> None:
    fall = LossFall()
    told = []
    for number in range(200):
        fall.add(5.0 - 0.01 * number)
        if number in (40, 65, 115, 190):
            told.append(fall.until(number))
    assert told == [None, pytest.approx(0.01), pytest.approx(0.01), pytest.approx(0.01)]


def test_it_is_not_read_off_a_few_noisy_batches() -> None:
    draws, fall = random.Random(1), LossFall()
    for number in range(400):
        fall.add(2.0 - 0.001 * number + draws.gauss(0, 0.05))
        if number >= 7 and number % 5 == 2:  # a profile's steps are behind it
            told = fall.until(number)
            assert told is None or abs(told - 0.001) < 0.0045
    assert told is not None


def test_it_stays_what_it_was_where_the_script_tells_no_more_losses() -> None:
    fall = LossFall()
    assert fall.until(10) is None
    for number in range(60):
        fall.add(-0.1 * number)
        fall.until(number)
    told = fall.until(60)
    fall.add(None)
    assert fall.until(61) == told == pytest.approx(0.1)
