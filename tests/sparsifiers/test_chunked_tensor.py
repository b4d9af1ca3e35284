"""A gradient in several pieces is read as the same gradient in one."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trimtab import kernels, sparsifiers
from trimtab.kernels import ChunkedTensor

LENGTHS = st.lists(st.integers(1, 700), min_size=1, max_size=6)
SEEDS = st.integers(0, 10**6)


def split(vector: torch.Tensor, lengths: list[int]) -> ChunkedTensor:
    """The vector in pieces of their own memory."""
    return ChunkedTensor([piece.clone() for piece in vector.split(lengths)])


def noise(n: int, seed: int) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None)
@given(lengths=LENGTHS, seed=SEEDS, data=st.data())
def test_a_range_of_the_pieces_is_that_range_of_the_vector(lengths, seed, data):
    vector = noise(sum(lengths), seed)
    first = data.draw(st.integers(0, vector.numel() - 1))
    stop = data.draw(st.integers(first + 1, vector.numel()))
    found = split(vector, lengths)[first:stop]
    pieces = [found] if isinstance(found, torch.Tensor) else found.pieces
    assert torch.equal(torch.cat(list(pieces)), vector[first:stop])
    assert found.numel() == stop - first


@settings(deadline=None)
@given(lengths=LENGTHS, seed=SEEDS, threshold=st.sampled_from([0.0, 0.5, 2.0, math.inf]), capacity=st.integers(0, 5000))
def test_the_fused_pass_over_pieces_finds_what_one_pass_finds(lengths, seed, threshold, capacity):
    grad, residual = noise(sum(lengths), seed), noise(sum(lengths), seed + 1)
    whole_residual, residual_of_pieces = torch.empty_like(grad), torch.empty_like(grad)
    whole = kernels.fused_select(grad, residual, whole_residual, threshold, capacity, offset=3)
    pieces = kernels.fused_select(split(grad, lengths), residual, residual_of_pieces, threshold, capacity, offset=3)
    assert pieces.num_over == whole.num_over
    assert torch.equal(pieces.indices, whole.indices)
    assert torch.equal(pieces.values, whole.values)
    assert torch.equal(residual_of_pieces, whole_residual)
    assert pieces.squared_norm_before == pytest.approx(whole.squared_norm_before, rel=1e-12)
    assert pieces.squared_norm_after == pytest.approx(
        whole.squared_norm_after, rel=1e-12, abs=1e-12 * whole.squared_norm_before
    )


@settings(deadline=None)
@given(lengths=LENGTHS, seed=SEEDS)
def test_accumulating_pieces_is_accumulating_the_vector(lengths, seed):
    grad, residual = noise(sum(lengths), seed), noise(sum(lengths), seed + 1)
    accumulated = torch.empty_like(grad)
    squared = kernels.accumulate(split(grad, lengths), residual, accumulated)
    assert torch.equal(accumulated, grad + residual)
    assert squared == pytest.approx(float((grad + residual).double().square().sum()), rel=1e-12)


@settings(deadline=None)
@given(lengths=LENGTHS, seed=SEEDS, data=st.data())
def test_a_sample_of_pieces_has_the_size_asked_for_and_draws_from_all(lengths, seed, data):
    grad, residual = noise(sum(lengths), seed), noise(sum(lengths), seed + 1)
    wanted = data.draw(st.integers(1, grad.numel()))
    drawn = kernels.sample(split(grad, lengths), residual, wanted)
    assert drawn.numel() == wanted
    assert set(drawn.tolist()) <= set((grad + residual).abs().tolist())
    everything = kernels.sample(split(grad, lengths), residual, grad.numel())
    assert torch.equal(everything, (grad + residual).abs())


@pytest.mark.parametrize("name", sparsifiers.names())
def test_a_sparsifier_conserves_what_the_pieces_hold(name):
    lengths = [200_000, 3, 60_000, 1]
    n = sum(lengths)
    selector = sparsifiers.create(name)
    residual = torch.zeros(n)
    for step in range(3):
        grad = noise(n, step)
        next_residual = torch.empty(n)
        selected = selector.compress(split(grad, lengths), residual, next_residual, (0, 100_000, n), (1000, 1600))
        selector.commit()
        restored = next_residual.clone()
        restored[selected.indices.long()] += selected.values
        assert torch.equal(restored, grad + residual)
        assert 0.25 * 2600 <= selected.indices.numel() <= 4 * 2600  # the widest bounds of them all
        residual = next_residual
