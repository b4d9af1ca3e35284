"""The tracked threshold on gradients of real training: dense enough, also right after the ratio changes."""

from itertools import pairwise

import pytest
import torch
from digits_training import Training
from trimtab import kernels, sparsifiers
from trimtab.plan.plan import elements_to_send
from trimtab.sparsifiers import near_k, threshold_selector

#: Every change between the ratios, in both directions, some after a few steps only.
RATIOS = [0.01] * 50 + [0.001] * 50 + [0.1] * 50 + [0.01] * 30 + [0.1] * 5 + [0.001] * 30 + [0.1] * 5 + [0.01] * 30


@pytest.mark.parametrize("batch_size", [16, 128])
@pytest.mark.parametrize("selection", ["behind", "ahead"])
def test_the_density_is_within_a_tenth_of_what_is_asked(batch_size, selection, monkeypatch):
    passes = {"first": 0, "in place": 0, "exact": 0, "small": 0}

    def counting(module, name, kind):
        original = getattr(module, name)

        def counted(*args, **kwargs):
            passes[kind] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    counting(kernels, "fused_select", "first")
    counting(kernels, "select_in_place", "in place")
    counting(near_k, "top_k_in_place", "exact")
    counting(threshold_selector, "select_exactly", "small")

    training, selector = Training(batch_size), sparsifiers.create("tracked")
    n = training.residual.numel()
    segments = (0, n) if selection == "behind" else training.offsets
    losses = []
    for ratio in RATIOS:
        grad, next_residual = training.gradient(), torch.empty(n)
        losses.append(training.loss.item())
        k = [elements_to_send(ratio, end - first) for first, end in pairwise(segments)]
        selected = selector.compress(grad, training.residual, next_residual, segments, k)
        selector.commit()
        assert 0.9 <= selected.indices.numel() / sum(k) <= 1.1
        update = torch.zeros(n)
        kernels.scatter_mean(update, [(selected.indices, selected.values)], 1.0)
        training.step(update, next_residual)

    assert sum(losses[-10:]) < sum(losses[:10]) / 2, "these were not gradients of training"
    exact = passes["exact"] + passes["small"]  # each ends with one pass in place
    assert passes["in place"] - exact < 0.05 * passes["first"], "one pass is the rule"
    assert passes["exact"] < 0.01 * passes["first"]
