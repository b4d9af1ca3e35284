"""ExDyna: partitions that cover the buffer and become even, a threshold that follows, and what density comes of it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.in_process import Ranks
from trimtab.papers.exdyna.partitions import BLOCK_MULTIPLE, MAX_BLOCKS, Partitions, block_size, imbalance
from trimtab.papers.exdyna.selection import RULES, mean_of
from trimtab.plan.plan import Plan

SIZES = st.integers(1, 12)
ELEMENTS = st.integers(1, 200_000)


def spans(partitions: Partitions) -> list[tuple[int, int]]:
    return [partitions.span(p) for p in range(len(partitions.first_blocks) - 1)]


def covers(partitions: Partitions) -> bool:
    edges = [edge for span in spans(partitions) for edge in span]
    return edges[0] == 0 and edges[-1] == partitions.num_elements and edges[1:-1:2] == edges[2::2]


@settings(max_examples=examples(50), deadline=None)
@given(n=ELEMENTS, size=SIZES)
def test_partitions_begin_even_and_cover_the_buffer_by_whole_blocks(n: int, size: int) -> None:
    partitions = Partitions.even(n, size)
    assert covers(partitions)
    assert block_size(n) % BLOCK_MULTIPLE == 0
    assert partitions.first_blocks[-1] <= MAX_BLOCKS
    lengths = [end - first for first, end in spans(partitions)]
    assert max(lengths) - min(lengths) < 2 * block_size(n)


@settings(max_examples=examples(50), deadline=None)
@given(n=ELEMENTS, size=SIZES, data=st.data())
def test_balancing_keeps_the_cover_and_a_quarter_of_each_partition(n: int, size: int, data: st.DataObject) -> None:
    partitions = Partitions.even(n, size)
    for _ in range(5):
        counts = data.draw(st.lists(st.integers(0, 1000), min_size=size, max_size=size).filter(any))
        partitions, expected = partitions.balanced(counts)
        assert covers(partitions)
        assert sum(expected) >= sum(counts) - 1e-6
        blocks = [b - a for a, b in zip(partitions.first_blocks[:-1], partitions.first_blocks[1:], strict=True)]
        even = Partitions.even(n, size).first_blocks[-1] // size
        assert all(block >= even // 4 for block in blocks)


def test_blocks_move_until_every_partition_selects_as_much() -> None:
    """Also past partitions that have the mean already, from one that has more to one that has less."""
    density = torch.ones(32_000)
    density[:8_000] = 3
    partitions, seen = Partitions.even(32_000, 4), []
    for _ in range(200):
        counts = [float(density[first:end].sum()) for first, end in spans(partitions)]
        seen.append(imbalance(counts))
        partitions, _ = partitions.balanced(counts)
    assert seen[0] == 2
    assert seen[-1] < 1.15, "neighbours are within 10% of each other"
    level = Partitions.even(32_000, 4)
    assert level.balanced([100, 99, 101, 100])[0] == level, "what is even stays"


@pytest.mark.parametrize(
    ("rule", "ratio", "scale"),
    [
        ("paper", 1.2, 1.005),
        ("paper", 1.0, 1.00125),
        ("paper", 0.8, 0.995),
        ("scaled", 1.0, 1.0),
        ("scaled", 1.2, 1.2**0.1),
        ("scaled", 8.0, 1.05),
        ("scaled", 0.0, 0.95),
    ],
)
def test_a_threshold_moves_by_what_it_achieved(rule: str, ratio: float, scale: float) -> None:
    assert RULES[rule](round(1000 * ratio), 1000) == pytest.approx(scale)


def test_ranks_agree_on_the_geometric_mean_of_their_first_thresholds() -> None:
    assert mean_of([1.0, 4.0]) == pytest.approx(2.0)
    assert mean_of([0.0, 0.0]) == pytest.approx(2.0**-149), "zeros are never selected for their magnitude"


N, K = 60_000, 3_000


def grads(size: int, step: int) -> list[torch.Tensor]:
    """Of layers unlike in size, whose loss falls."""
    random = torch.Generator().manual_seed(step)
    scale = torch.cat([torch.full((N // 4,), 4.0), torch.full((N - N // 4,), 1.0)]) * 0.97**step
    return [torch.randn(N, generator=random) * scale for _ in range(size)]


@pytest.mark.parametrize("size", [3, 4])
def test_what_is_sent_is_near_k_and_shared_evenly_whatever_gradients_do(size: int) -> None:
    ranks = Ranks(Plan.parse(f"{K / N}/exdyna"), size, N)
    thresholds: list[float] = []
    for step in range(30):
        before = torch.stack(ranks.residuals) + torch.stack(given := grads(size, step))
        sudden = 50.0 if step == 20 else 1.0
        before += (sudden - 1) * torch.stack(given)
        update, exchanged = ranks.exchange([sudden * grad for grad in given])
        figures = exchanged[0].figures
        assert abs(figures["density"] * N - K) <= 0.1 * K + size
        assert figures["imbalance"] <= 1.25
        assert all(each.figures == figures for each in exchanged)
        thresholds.append(figures["threshold"])
        left = before.double().sum(0) - size * update.double() - torch.stack(ranks.residuals).double().sum(0)
        assert (left.abs() <= 4 * size * 2**-24 * before.abs().sum(0)).all()
    assert 0.8 < thresholds[19] / thresholds[10] < 1.25, "it follows residuals, which have settled"
    assert thresholds[21] > 3 * thresholds[20], "and is found anew where it is lost"
    ranks.close()


def test_the_published_rule_and_even_partitions_are_there_to_compare_with() -> None:
    found = {}
    for options in ("", ":threshold=scaled", ":threshold=scaled:partition=coarse", ":threshold=paper"):
        ranks = Ranks(Plan.parse(f"{K / N}/exdyna{options}"), 4, N)
        for step in range(40):
            _, exchanged = ranks.exchange(grads(4, step))
        found[options] = exchanged[0].figures
        ranks.close()
    assert found[""]["imbalance"] < found[":threshold=scaled"]["imbalance"]
    assert found[":threshold=scaled"]["imbalance"] < found[":threshold=scaled:partition=coarse"]["imbalance"]
    assert found[":threshold=paper"]["threshold"] == pytest.approx(0.5 / K**0.5 * 1.005**39, rel=1e-3)


def test_saved_and_continued_it_goes_on_as_if_never_stopped_also_in_a_smaller_world() -> None:
    def run(ranks: Ranks, steps: range) -> list[torch.Tensor]:
        return [ranks.exchange(grads(len(ranks.residuals), step))[0] for step in steps]

    plan = Plan.parse(f"{K / N}/exdyna")
    whole, second, smaller = (Ranks(plan, size, N) for size in (4, 4, 3))
    run(whole, range(10))
    state = whole.state_dict()
    second.load_state_dict(state)
    for a, b in zip(run(whole, range(10, 14)), run(second, range(10, 14)), strict=True):
        assert torch.equal(a, b)
    three = state | {"residuals": state["residuals"][:3], "schemes": state["schemes"][:3]}
    smaller.load_state_dict(three)
    run(smaller, range(10, 12))
    for each in (whole, second, smaller):
        each.close()


def test_a_dropped_step_leaves_no_trace_and_a_new_fusion_plan_keeps_what_it_can() -> None:
    ranks = Ranks(Plan.parse(f"{K / N}/exdyna"), 2, N)
    for step in range(3):
        ranks.exchange(grads(2, step))
    scheme = ranks.schemes[0]
    before = scheme.state_dict()
    ranks.exchange(grads(2, 3), commits=False)
    assert scheme.state_dict() == before
    scheme.rebucket([(0, N)], [(0, N), (N, N + 5)])
    assert scheme.state_dict() == before
    scheme.rebucket([(0, N)], [(0, N // 2), (N // 2, N)])
    assert scheme.state_dict() == {"buffers": []}
    ranks.close()
