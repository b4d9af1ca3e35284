"""The judge: on networks nobody tuned for, adaptive against the best static plan in hindsight, and against dense."""

from __future__ import annotations

from statistics import median

import pytest
from recorded import DIGITS, LARGE, random_adam_world
from simulator import GRID, UPDATES, Run, dense, random_world, static
from trimtab.attachment import sources_between
from trimtab.control.types import ControllerSettings


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_adaptive_is_near_the_best_static_plan_and_never_behind_dense():
    """Time to target over 32 random worlds, half with 4 and half with 8 ranks."""
    over_best, over_dense, exploring = [], [], []
    for seed in range(16):
        for num_ranks in (4, 8):
            world = random_world(seed, num_ranks)
            adaptive = Run(world, ControllerSettings(), seed).until_target()
            over_best.append(adaptive.seconds / min(Run(world, static(p), seed).until_target().seconds for p in GRID))
            over_dense.append(adaptive.seconds / Run(world, dense(), seed).until_target().seconds)
            exploring.append(adaptive.exploration_seconds / adaptive.seconds)
    ranked = sorted(over_best)
    print(f"over the best static plan: median {median(ranked):.3f}, nine in ten under {ranked[28]:.3f}, {ranked}")
    assert median(ranked) <= 1.05
    assert ranked[28] <= 1.10
    assert max(ranked) <= 1.20
    assert max(over_dense) <= 1.05
    assert max(exploring) < 0.10


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_under_adam_too_by_curves_that_were_recorded_of_real_training():
    """The truth is not the controller's law but what `measure_adam.py` saw, off by a tenth; dense is best in some.

    Of some models compression costs less than the law, which is the careful edge of what was seen, has it: where dense
    is near, what they could have gained is left lying.
    """
    over_best, over_dense = [], []
    for seed in range(12):
        for num_ranks in (4, 8):
            world = random_adam_world(seed, num_ranks)
            adaptive = Run(world, ControllerSettings(), seed).until_target()
            sparse = min(Run(world, static(plan), seed).until_target().seconds for plan in GRID)
            all_sent = Run(world, dense(), seed).until_target().seconds
            over_best.append(adaptive.seconds / min(sparse, all_sent))
            over_dense.append(adaptive.seconds / all_sent)
            assert adaptive.exploration_seconds == 0
    ranked = sorted(over_best)
    print(f"over the best static plan: median {median(ranked):.3f}, eight in ten under {ranked[19]:.3f}, {ranked}")
    print(f"over dense: at most {max(over_dense):.3f}, {sorted(over_dense)}")
    assert median(ranked) <= 1.05
    assert ranked[19] <= 1.10
    assert max(ranked) <= 1.20
    assert max(over_dense) <= 1.05
    assert sum(ratio > 0.97 for ratio in over_dense) >= 4, "worlds in which nothing beats dense by much"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_under_adam_local_steps_bring_the_target_nearer_by_curves_that_were_recorded():
    """Of the best static plan of gradients little more than half is left where the network is slow."""
    over_best, over_gradients, over_dense = [], [], []
    settings = ControllerSettings(sources_in_batches=sources_between(1, 16))
    for seed in range(6):
        world = random_adam_world(seed, 4, (DIGITS, LARGE))
        adaptive = Run(world, settings, seed).until_target().seconds
        gradients = min(Run(world, static(plan), seed).until_target().seconds for plan in GRID)
        updates = min(Run(world, static(plan), seed).until_target().seconds for plan in UPDATES)
        all_sent = Run(world, dense(), seed).until_target().seconds
        over_best.append(adaptive / min(gradients, updates, all_sent))
        over_gradients.append(adaptive / gradients)
        over_dense.append(adaptive / all_sent)
    print(f"over the best static plan: {sorted(over_best)}")
    print(f"over the best that sends gradients: {sorted(over_gradients)}")
    print(f"over dense: {sorted(over_dense)}")
    assert median(over_best) <= 1.10
    assert max(over_best) <= 1.25
    assert max(over_dense) <= 1.05
    assert median(over_gradients) <= 0.8
