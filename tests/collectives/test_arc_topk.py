"""ARC-Top-K: what its sketch costs, and which blocks it finds."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from kit.in_process import Ranks
from trimtab.papers.arc_topk.arc_topk import blocks_of
from trimtab.plan.plan import Plan
from trimtab_api.catalogue.costs import ARC_FEWEST_BLOCKS, ARC_SKETCH_SHARE


@given(n=st.integers(1, 10**8), ratio=st.floats(1e-4, 1))
def test_blocks_make_k_elements_and_their_sketch_is_small_where_it_can_be(n: int, ratio: float) -> None:
    k = max(1, int(n * ratio))
    num_sent, block = blocks_of(n, k)
    assert k - num_sent < num_sent * block <= k
    is_small = num_sent in (1, k, ARC_FEWEST_BLOCKS)
    assert is_small or n / (block + 1) <= ARC_SKETCH_SHARE * k, "but for a block cut short to whole elements"


def test_the_block_that_weighs_most_in_the_mean_is_sent_and_none_that_cancels() -> None:
    """A small one of all ranks is sent before a large one that two ranks have with opposite signs."""
    n, k = 32_000, 3_200
    num_sent, block = blocks_of(n, k)
    random = torch.Generator().manual_seed(17)  # not the direction's
    noise = [0.001 * torch.randn(n, generator=random) for _ in range(3)]
    cancels, common = slice(0, block), [slice(b * block, (b + 1) * block) for b in range(2, 2 + num_sent)]
    large = 100 * torch.randn(block, generator=random)
    noise[0][cancels] += large
    noise[1][cancels] -= large
    for grad in noise:
        for where in common:
            grad[where] += 1.0
    ranks = Ranks(Plan.parse(f"{k / n}/arc-topk"), 3, n)
    _, exchanged = ranks.exchange(noise)
    ranks.close()
    assert all(torch.equal(each.sent, exchanged[0].sent) for each in exchanged)
    sent = set(exchanged[0].sent.tolist())
    assert all(set(range(where.start, where.stop)) <= sent for where in common)
    assert not sent & set(range(*cancels.indices(n)))
