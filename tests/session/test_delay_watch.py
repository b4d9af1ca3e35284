"""When a loss shows that updates which come late do harm."""

from __future__ import annotations

import random

import pytest
import torch
from trimtab.engine.profiling.loss_monitor import DelayWatch


def first_harm(losses, delayed_from):
    """The iteration whose loss shows it; None where none does."""
    watch = DelayWatch()
    shown = [number for number, loss in enumerate(losses) if watch.add(loss, is_delayed=number >= delayed_from)]
    return shown[0] if shown else None


def trained(curvature, delay_from, steps=60, momentum=0.9, learning_rate=0.1):
    """Losses of heavy-ball SGD on half of a quadratic that is steep one way and nearly flat the other."""
    curvatures = torch.tensor([curvature, 0.02])
    draws = torch.Generator().manual_seed(1)
    weights, velocity, before = torch.ones(2), torch.zeros(2), torch.zeros(2)
    for step in range(steps):
        yield float((curvatures * weights.square()).sum()) / 2 + 0.02 * float(torch.randn(1, generator=draws))
        gradient = curvatures * weights + 0.01 * torch.randn(2, generator=draws)
        velocity = momentum * velocity + (before if step >= delay_from else gradient)
        before = gradient
        weights = weights - learning_rate * velocity


@pytest.mark.parametrize("curvature", [3.0, 10.0, 30.0])
def test_where_one_late_update_is_too_late_it_is_seen_within_some_iterations(curvature):
    """Stable without a delay, up to 38; with one from 1 on none is."""
    assert first_harm(trained(curvature, delay_from=10**9), delayed_from=0) is None
    noticed = first_harm(trained(curvature, delay_from=40, steps=80), delayed_from=40)
    assert noticed is not None
    assert noticed <= 40 + 25


def test_a_curvature_that_bears_a_delay_is_left_alone():
    assert first_harm(trained(0.5, delay_from=40, steps=400), delayed_from=40) is None


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_harm(seed):
    draws = random.Random(seed)
    losses = (2.0 - 0.001 * number + draws.gauss(0, 0.2) for number in range(2000))
    assert first_harm(losses, delayed_from=30) is None


def test_a_loss_that_rises_without_a_delay_is_another_matter():
    assert first_harm([1.0 + 0.1 * number for number in range(60)], delayed_from=10**9) is None


def test_it_is_said_once():
    watch = DelayWatch()
    losses = [1.0] * 30 + [2.0] * 10
    assert [watch.add(loss, is_delayed=number >= 30) for number, loss in enumerate(losses)].count(True) == 1


def test_a_script_that_tells_no_loss_is_told_nothing():
    assert first_harm([None] * 60, delayed_from=0) is None
