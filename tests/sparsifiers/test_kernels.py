"""The CPU kernels do what the reference does, bit for bit, and their sums to float64 rounding."""

import math
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trimtab import kernels
from trimtab.kernels import cpu, loops, reference
from trimtab.kernels.warm_up import warm_up

LANES_AND_EDGES = st.sampled_from([1, 2, 15, 16, 63, 64, 65, 127, 128, 129, 1000, 4099])
THRESHOLDS = st.sampled_from([0.0, 2.0**-149, 0.3, 1.0, 2.5, 100.0, math.inf])
ROOM = st.sampled_from([0, 1, 7, 64, 5000])
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-44, 3e38, -3e38, 1.0, -1.0]


def noise(n: int, seed: int, *, special: bool = False) -> torch.Tensor:
    """n floats that begin at any multiple of 4 bytes, with a few values that arithmetic treats apart."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(n + seed % 17, generator=generator)[seed % 17 :]
    if special:
        at = torch.randint(0, n, (min(n, 10),), generator=generator)
        values[at] = torch.tensor(SPECIAL)[torch.randint(0, len(SPECIAL), (at.numel(),), generator=generator)]
    return values


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32)) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def assert_agree(ours: kernels.CompactResult, oracle: kernels.CompactResult) -> None:
    assert ours.num_over == oracle.num_over
    assert torch.equal(ours.indices, oracle.indices)
    assert ours.indices.dtype == torch.int32
    assert same(ours.values, oracle.values)
    if math.isfinite(oracle.squared_norm_before):
        assert ours.squared_norm_before == pytest.approx(oracle.squared_norm_before, rel=1e-12)
        tolerance = 1e-12 * oracle.squared_norm_before
        assert ours.squared_norm_after == pytest.approx(oracle.squared_norm_after, rel=1e-12, abs=tolerance)
    else:
        assert not math.isfinite(ours.squared_norm_before)


@settings(deadline=None)  # the first call compiles
@given(n=LANES_AND_EDGES, threshold=THRESHOLDS, capacity=ROOM, seed=st.integers(0, 10**6), special=st.booleans())
def test_the_fused_pass_agrees_with_the_reference(n, threshold, capacity, seed, special):
    grad, residual = noise(n, seed, special=special), noise(n, seed + 1)
    ours, oracle = noise(n, seed + 2), noise(n, seed + 3)
    assert_agree(
        cpu.fused_select(grad, residual, ours, threshold, capacity, offset=5),
        reference.fused_select(grad, residual, oracle, threshold, capacity, offset=5),
    )
    assert same(ours, oracle)


@settings(deadline=None)  # the first call compiles
@given(n=LANES_AND_EDGES, threshold=THRESHOLDS, capacity=ROOM, seed=st.integers(0, 10**6), special=st.booleans())
def test_selection_in_place_agrees_with_the_reference(n, threshold, capacity, seed, special):
    ours = noise(n, seed, special=special)
    oracle = ours.clone()
    assert_agree(
        cpu.select_in_place(ours, threshold, capacity, offset=5),
        reference.select_in_place(oracle, threshold, capacity, offset=5),
    )
    assert same(ours, oracle)


@pytest.mark.parametrize("capacity", [10, 100_000])
def test_large_buffers_are_written_past_the_cache_with_the_same_result(capacity):
    n = cpu.STREAM_FROM_BYTES // 4 + 77
    for seed in (0, 1, 16):  # the result begins on and off a cache line
        grad, residual, ours, oracle = noise(n, 3), noise(n, 4), noise(n, seed), noise(n, 5)
        assert_agree(
            cpu.fused_select(grad, residual, ours, 2.0, capacity),
            reference.fused_select(grad, residual, oracle, 2.0, capacity),
        )
        assert same(ours, oracle)


def test_what_does_not_fit_is_counted_and_kept():
    grad, residual, kept = noise(1000, 0), noise(1000, 1), torch.empty(1000)
    found = kernels.fused_select(grad, residual, kept, threshold=0.5, capacity=10)
    assert found.overflowed
    assert found.num_over == int(((grad + residual).abs() >= 0.5).sum())
    kernels.put(kept, found.indices, found.values)
    assert torch.equal(kept, grad + residual)


@pytest.mark.parametrize("num_parts", [0, 1, 5])
def test_sparse_parts_are_summed_range_by_range_in_their_order(num_parts):
    n = 3 * loops.SUMMED_AT_ONCE + 77
    for seed in (0, 1, 16):  # the result begins on and off a cache line
        draws = torch.Generator().manual_seed(seed)
        chosen = [(torch.rand(n, generator=draws) < 0.1).nonzero().flatten().int() for _ in range(num_parts)]
        parts = [(indices, noise(indices.numel(), seed + 2)) for indices in chosen]
        ours, oracle = noise(n, seed), noise(n, 5)
        cpu.scatter_mean(ours, parts, 1 / 3)
        reference.scatter_mean(oracle, parts, 1 / 3)
        assert same(ours, oracle)


@settings(deadline=None)  # the first call compiles
@given(n=LANES_AND_EDGES, seed=st.integers(0, 10**6))
def test_the_smaller_kernels_agree_with_the_reference(n, seed):
    grad, residual, ours, oracle = (noise(n, seed + i) for i in range(4))
    before = cpu.accumulate(grad, residual, ours)
    assert before == pytest.approx(reference.accumulate(grad, residual, oracle), rel=1e-12)
    assert same(ours, oracle)

    indices = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[: n // 2 + 1].sort().values.int()
    values = cpu.take(ours, indices)
    assert same(values, reference.take(oracle, indices))
    assert cpu.clear(ours, indices) == pytest.approx(reference.clear(oracle, indices), rel=1e-12)
    assert same(ours, oracle)
    cpu.put(ours, indices, values)
    reference.put(oracle, indices, values)
    assert same(ours, oracle)

    parts = [(indices, values), (indices[::2], values[::2] * 3), (indices[:0], values[:0])]
    cpu.scatter_mean(ours, parts, 1 / 3)
    reference.scatter_mean(oracle, parts, 1 / 3)
    assert same(ours, oracle)

    for threshold in (0.0, 0.5, 9.0):
        ours_tail, oracle_tail = cpu.tail(grad, threshold), reference.tail(grad, threshold)
        assert (ours_tail.count, ours_tail.largest) == (oracle_tail.count, oracle_tail.largest)
        assert ours_tail.total == pytest.approx(oracle_tail.total, rel=1e-12)
        assert ours_tail.squares == pytest.approx(oracle_tail.squares, rel=1e-12)

    for draw in (0, 3):
        assert same(cpu.sample(grad, residual, n // 3 + 1, draw), reference.sample(grad, residual, n // 3 + 1, draw))


@settings(deadline=None)  # the first call compiles
@given(n=LANES_AND_EDGES, seed=st.integers(0, 10**6), share=st.floats(0.01, 1.0), has_ties=st.booleans())
def test_all_but_the_largest_are_put_back_as_in_the_reference(n, seed, share, has_ties):
    acc = noise(n, seed)
    if has_ties:
        acc = acc.mul(2).round().div(2)
    indices = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[: n // 2 + 1].sort().values.int()
    values, k = cpu.take(acc, indices), math.ceil(share * (n // 2 + 1))
    cpu.clear(acc, indices)
    boundary = float(values.abs().sort(descending=True).values[k - 1])
    ours, oracle = acc.clone(), acc.clone()
    kept = cpu.put_back(ours, indices + 5, values, k, boundary, offset=5)
    assert kept[0].numel() == k
    for mine, theirs in zip(kept[:2], reference.put_back(oracle, indices + 5, values, k, boundary, 5)[:2], strict=True):
        assert torch.equal(mine, theirs)
    assert same(ours, oracle)
    assert kept[2] == pytest.approx(float(values.double().square().sum() - kept[1].double().square().sum()), abs=1e-9)


@settings(deadline=None)  # the first call compiles
@given(n=LANES_AND_EDGES, seed=st.integers(0, 10**6))
def test_rounding_to_bfloat16_agrees_with_the_reference(n, seed):
    values, errors = noise(n, seed, special=True), noise(n, seed + 1)
    halfway = values.view(torch.int32)
    halfway[::3] = halfway[::3] & ~0xFFFF | 0x8000  # between two bfloat16
    ours, oracle, our_errors, its_errors = values.clone(), values.clone(), errors.clone(), errors.clone()
    rounded, expected = cpu.round_to_bfloat16(ours, our_errors), reference.round_to_bfloat16(oracle, its_errors)
    assert rounded.dtype == torch.bfloat16
    assert same(rounded.float(), expected.float())
    assert same(ours, oracle)
    assert same(our_errors, its_errors)
    assert same(ours, rounded.float()), "what is left is what is sent"

    cpu.add_bfloat16(errors, rounded)
    reference.add_bfloat16(its_sum := noise(n, seed + 1), expected)
    assert same(errors, its_sum)


@settings(deadline=None)  # the first call compiles
@given(
    n=st.one_of(st.just(0), LANES_AND_EDGES),
    bits=st.sampled_from([8, 4, 2]),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1.0, 1e-38, 1e-42, 1e30, 0.0]),
)
def test_blocks_of_few_bits_agree_with_the_reference(n, bits, seed, scale):
    values = scale * noise(n, seed)
    ours, oracle = cpu.write_blocks(values, bits), reference.write_blocks(values, bits)
    assert torch.equal(ours, oracle)
    read, by_reference = torch.empty(n), torch.empty(n)
    cpu.read_blocks(torch.cat([ours[:1], ours])[1:], bits, read)  # a message may begin anywhere
    reference.read_blocks(oracle, bits, by_reference)
    assert same(read, by_reference)


@pytest.mark.parametrize("module", [cpu, reference])
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_a_block_of_few_bits_that_holds_no_number_is_read_as_none_and_the_next_as_it_was(module, bits, special):
    values = noise(200, 1)
    values[70] = special
    read = torch.empty(200)
    module.read_blocks(module.write_blocks(values, bits), bits, read)
    assert read.isfinite().tolist() == [not 64 <= at < 128 for at in range(200)]


def test_the_reference_and_so_a_gpu_warms_up_too(monkeypatch):
    monkeypatch.setattr(kernels, "_backend", lambda tensor: reference)
    warm_up(torch.device("cpu"))


def test_a_sample_is_one_element_of_each_stride_and_differs_between_draws():
    grad, residual = torch.arange(10_000.0), torch.zeros(10_000)
    first, second = (kernels.sample(grad, residual, 100, draw) for draw in (0, 1))
    assert torch.equal((first // 100), torch.arange(100.0))
    assert not torch.equal(first, second)
    assert (first % 100).unique().numel() > 40, "places within the stride repeat"


def test_other_threads_run_during_a_pass():
    """The kernel holds no lock of the interpreter: this thread sees a pass half done."""
    n = 30_000_000
    grad, residual, kept = torch.ones(n), torch.zeros(n), torch.empty(n)
    written = kept.numpy()

    def a_pass_is_seen_half_done() -> bool:
        kept.zero_()
        thread = threading.Thread(target=kernels.fused_select, args=(grad, residual, kept, 2.0, 10))
        thread.start()
        seen = False
        while thread.is_alive():
            last, first = written[-1], written[0]  # in this order: the first is written before the last
            seen |= bool(first == 1 and last == 0)
        thread.join()
        return seen

    assert any(a_pass_is_seen_half_done() for _ in range(50))


@pytest.mark.parametrize("n", [1, 1000, cpu.STREAM_FROM_BYTES // 4 + 77])
@pytest.mark.parametrize("scale", [1.0, 1 / 1024])
@pytest.mark.parametrize("shift", [0, 3])
def test_a_gradient_enters_the_arena_scaled_and_unscaled_bit_for_bit(n, scale, shift):
    source, room = torch.randn(n), torch.full((n + 8,), 7.0)
    cpu.scale_into(source, room[shift : shift + n], scale)
    assert same(room[shift : shift + n], source * scale)
    assert (room[:shift] == 7).all()
    assert (room[shift + n :] == 7).all()
