"""What every sparsifier promises, whatever it selects by."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from trimtab import sparsifiers
from trimtab.plan.plan import elements_to_send
from trimtab.sparsifiers.near_k import EXACT_UP_TO
from trimtab.sparsifiers.threshold_selector import ThresholdSelector
from trimtab_api.catalogue import SPARSIFIERS
from trimtab_api.errors import UserError

OPTIONS = ("sidco:fit=pareto", "hard-threshold:threshold=1.5", "random-k:seed=3")
EVERY = (*sparsifiers.names(), *OPTIONS)
NAMES = st.sampled_from(EVERY)
#: Of k, where a segment is not selected exactly; the others select exactly k of every one.
BOUNDS = {
    "tracked": (0.9, 1.1),
    "dgc": (0.8, 1.3),
    "sidco": (0.5, 2.0),
    "gaussian-k": (2 / 3, 4 / 3),
    "redsync": (0.5, 2.0),
    "hard-threshold": (0.25, 4.0),
}
#: Those that do not send the largest: one fills up at random, the other draws all.
NOT_LARGEST = ("mstopk", "random-k")
SIZES = st.sampled_from([1, 2, 3, 97, EXACT_UP_TO, EXACT_UP_TO + 1, 50_021])
RATIOS = st.sampled_from([0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 1.0])
DISTRIBUTIONS = {
    "normal": lambda n: torch.randn(n),
    "laplace": lambda n: torch.distributions.Laplace(0.0, 1.0).sample((n,)),
    "student": lambda n: torch.distributions.StudentT(2.0).sample((n,)),
    "tiny": lambda n: torch.randn(n) * 1e-30,
    "denormal": lambda n: torch.randn(n) * 1e-41,
    "huge": lambda n: torch.randn(n) * 1e30,
    "all equal": lambda n: torch.full((n,), 0.25),
    "two values": lambda n: torch.randint(1, 3, (n,)).float() * torch.randint(0, 2, (n,)).mul(2).sub(1),
    "mostly zero": lambda n: torch.randn(n) * (torch.rand(n) < 0.003),
    "zero": lambda n: torch.zeros(n),
    "one spike": lambda n: torch.zeros(n).index_fill(0, torch.tensor(n // 2), -3.0),
    "one layer a million times larger": lambda n: (
        torch.randn(n) * torch.ones(n).index_fill(0, torch.arange(n // 7), 1e6)
    ),
    "rows": lambda n: torch.randn(n) * torch.randn(64).exp().repeat(n // 64 + 1)[:n],
}


def bounds(name, k, n):
    """The fewest and the most of a segment of n elements that a sparsifier says it sends."""
    lower, upper = BOUNDS.get(name.partition(":")[0], (1, 1)) if n > EXACT_UP_TO and k < n else (1, 1)
    return max(1, math.ceil(lower * k)), max(1, math.floor(upper * k))


def compress(selector, grad, residual, segments, k, start=0):
    """Select, and check what holds for any selection."""
    kept = torch.full_like(grad, math.nan)
    before = grad.clone(), residual.clone()
    selected = selector.compress(grad, residual, kept, segments, k, start)
    acc = grad + residual
    assert torch.equal(grad, before[0])
    assert torch.equal(residual, before[1])
    assert selected.indices.dtype == torch.int32
    assert selected.values.dtype == torch.float32
    indices = selected.indices.long()
    assert indices.numel() >= 1
    assert (indices.diff() > 0).all(), "ascending, so unique"
    assert indices[0] >= 0
    assert indices[-1] < grad.numel()
    assert torch.equal(selected.values, acc[indices]), "values are acc's"
    rest = acc.clone()
    rest[indices] = 0
    assert torch.equal(kept, rest), "the residual is acc with the selection zeroed"
    total = float(acc.double().square().sum())
    assert selected.squared_norm_before == pytest.approx(total, rel=1e-9)
    assert selected.squared_norm_after == pytest.approx(float(rest.double().square().sum()), rel=1e-9, abs=1e-9 * total)
    return selected


@settings(deadline=None, max_examples=examples(150))
@given(name=NAMES, n=SIZES, ratio=RATIOS, shape=st.sampled_from(sorted(DISTRIBUTIONS)), seed=st.integers(0, 10**6))
def test_a_selection_conserves_acc_and_is_as_large_as_asked(name, n, ratio, shape, seed):
    torch.manual_seed(seed)
    selector, k = sparsifiers.create(name), elements_to_send(ratio, n)
    residual = torch.zeros(n)
    for _ in range(3):
        grad = DISTRIBUTIONS[shape](n)
        selected = compress(selector, grad, residual, (0, n), (k,), start=seed)
        selector.commit()
        num_selected, acc = selected.indices.numel(), grad + residual
        fewest, most = bounds(name, k, n)
        assert min(fewest, max(1, int((acc != 0).sum()))) <= num_selected <= most
        if not name.startswith(NOT_LARGEST):
            rest = acc.abs().index_fill(0, selected.indices.long(), 0)
            assert float(selected.values.abs().min()) >= float(rest.max()), "the largest are sent"
        residual = rest_of(acc, selected)


def rest_of(acc, selected):
    return acc.index_fill(0, selected.indices.long(), 0)


@settings(deadline=None)
@given(name=NAMES, data=st.data(), ratio=RATIOS, seed=st.integers(0, 10**6))
def test_every_segment_is_selected_by_itself(name, data, ratio, seed):
    lengths = data.draw(st.lists(st.sampled_from([0, 1, 5, 300, 40_000]), min_size=1, max_size=6).filter(any))
    torch.manual_seed(seed)
    segments = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    k = [elements_to_send(ratio, max(1, length)) for length in lengths]
    n = segments[-1]
    grad = torch.randn(n) * torch.logspace(-3, 3, n)  # behind fusion, the first segments would send nothing
    selected = compress(sparsifiers.create(name), grad, torch.zeros(n), segments, k)
    for first, end, asked in zip(segments, segments[1:], k, strict=False):
        inside = int(((selected.indices >= first) & (selected.indices < end)).sum())
        if end == first:
            continue
        fewest, most = bounds(name, asked, end - first)
        assert fewest <= inside <= most


def test_layer_wise_top_k_is_top_k_of_each_layer():
    grad = torch.tensor([5.0, -6.0, 1.0, 0.1, -0.3, 0.2])
    selected = compress(sparsifiers.create("topk"), grad, torch.zeros(6), (0, 3, 6), (1, 2))
    assert selected.indices.tolist() == [1, 4, 5]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("everywhere", [False, True])
def test_what_is_not_finite_is_seen_and_neither_hangs_nor_crashes(name, poison, everywhere):
    selector, n = sparsifiers.create(name), 50_000
    for _ in range(2):  # with and without carried state
        grad = torch.randn(n)
        grad[:: 1 if everywhere else 5000] = poison
        kept = torch.empty(n)
        selected = selector.compress(grad, torch.zeros(n), kept, (0, n), (100,))
        assert not math.isfinite(selected.squared_norm_before)
        assert selected.indices.numel() >= 1
        selector.discard()
        compress(selector, torch.randn(n), torch.zeros(n), (0, n), (100,))
        selector.commit()


def bits_of(selector, grads):
    """What the selector would send for each of these gradients, each one committed."""
    sent = []
    for grad in grads:
        n = grad.numel()
        selected = selector.compress(grad, torch.zeros(n), torch.empty(n), (0, n), (n // 100,), 7)
        selector.commit()
        sent.append((selected.indices.tolist(), selected.values.tolist()))
    return sent


@pytest.mark.parametrize("name", EVERY)
def test_a_dropped_step_leaves_no_trace(name):
    torch.manual_seed(0)
    grads = [torch.randn(80_000) * scale for scale in (1.0, 1.1, 0.9)]
    undisturbed, disturbed = sparsifiers.create(name), sparsifiers.create(name)
    assert bits_of(undisturbed, grads[:2]) == bits_of(disturbed, grads[:2])
    before = disturbed.state_dict()
    n = 80_000
    disturbed.compress(torch.randn(n) * 100, torch.zeros(n), torch.empty(n), (0, n), (500,), 7)
    disturbed.discard()
    assert disturbed.state_dict() == before
    assert bits_of(undisturbed, grads) == bits_of(disturbed, grads)


@pytest.mark.parametrize("name", EVERY)
def test_state_that_is_saved_and_loaded_selects_the_same(name):
    torch.manual_seed(0)
    grads = [torch.randn(80_000) * scale for scale in (1.0, 1.1, 0.9, 1.0)]
    first, second = sparsifiers.create(name), sparsifiers.create(name)
    bits_of(first, grads)
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()
    assert bits_of(first, grads) == bits_of(second, grads)


def test_the_plan_knows_every_sparsifier():
    assert set(SPARSIFIERS) == set(sparsifiers.names())
    assert sparsifiers.names()[0] == "tracked"


def test_a_name_that_is_not_known_says_what_is():
    with pytest.raises(UserError, match=f"sparsifier: 'toppk': not known; choose from {', '.join(SPARSIFIERS)}"):
        sparsifiers.create("toppk")


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("n", [50, 50_021])
def test_a_block_that_is_formed_is_selected_from_in_place(name: str, n: int) -> None:
    grad, residual = torch.randn(2, n, generator=torch.Generator().manual_seed(n)).unbind()
    acc, k = grad + residual, elements_to_send(0.01, n)
    left = acc.clone()
    selector = sparsifiers.create(name)
    for _ in range(3):  # what it carries from step to step is kept by the block's place
        left.copy_(acc)
        taken = selector.take(left, k, (7, n))
        selector.commit()
    fewest, most = bounds(name, k, n)
    assert fewest <= taken.indices.numel() <= most
    assert torch.equal(taken.values, acc[taken.indices.long()])
    assert not left[taken.indices.long()].any()
    left[taken.indices.long()] = taken.values
    assert torch.equal(left, acc)
    assert taken.squared_norm_before == pytest.approx(float(acc.double().square().sum()), rel=1e-5)


class OfThisCount(ThresholdSelector):
    """Its threshold is reached by just so many."""

    name, lower, upper = "of-this-count", 0.8, 1.3

    def __init__(self, count):
        self._count = count

    def _threshold(self, grad, residual, k, key):
        return float(grad.abs().sort(descending=True).values[self._count - 1])


@pytest.mark.parametrize("k", [100, 101, 103])
def test_a_count_below_the_lower_bound_is_not_sent(k):
    acc = torch.arange(1, EXACT_UP_TO + 2).float()
    for count in (math.floor(0.8 * k), math.ceil(0.8 * k)):
        found = OfThisCount(count).compress(acc, torch.zeros_like(acc), torch.empty_like(acc), [0, acc.numel()], [k])
        assert found.indices.numel() >= 0.8 * k
        assert (found.indices.numel() == count) == (count >= 0.8 * k)


def test_segments_of_one_length_have_each_a_state_of_their_own():
    n, start = EXACT_UP_TO + 1, 1000
    selector, grad = sparsifiers.create("tracked"), torch.cat([torch.randn(n), 1000 * torch.randn(n)])
    selector.compress(grad, torch.zeros_like(grad), torch.empty_like(grad), [0, n, 2 * n], [300, 300], start)
    selector.commit()
    assert [first for first, *_ in selector.state_dict()["ranges"]] == [start, start + n]
