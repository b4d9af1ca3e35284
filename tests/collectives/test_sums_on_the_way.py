"""What gTopk and TopkDSA make of the ranks' selections, beside plain sums of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from on_ranks import Member, on_ranks, run
from torch import Tensor
from trimtab import collectives, sparsifiers
from trimtab_api.catalogue import costs

N, K = 3000, 60


def exchange(member: Member, scheme: str, k: int = K, same: bool = False):
    """Accumulation, update, residual and what was told of one exchange; the ``same`` gradient on each rank, or none."""
    grad = torch.randn(N, generator=torch.Generator().manual_seed(0 if same else member.rank))
    next_residual, out = torch.empty_like(grad), torch.empty_like(grad)
    exchange = collectives.Exchange(grad, torch.zeros(N), next_residual, out, (0, N), (k,), 0)
    exchanged = run(member.make(scheme), exchange, sparsifiers.create("topk"))
    return grad, out, next_residual, exchanged


def selected(acc: Tensor, k: int = K) -> Tensor:
    """``acc``, zeroed where it is not among the k largest."""
    return torch.zeros_like(acc).index_copy_(0, chosen := acc.abs().topk(k).indices, acc[chosen])


def merged(parts: Sequence[Tensor], k: int) -> Tensor:
    """gTopk by its definition: neighbours are summed and cut to k, then neighbours of these."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [selected(sum(pair), k) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


@pytest.mark.parametrize("size", [2, 3, 4, 6, 8])
def test_gtopk_keeps_the_k_largest_at_each_merge(size: int) -> None:
    ranks = on_ranks(size, exchange, "gtopk")
    expected = merged([selected(acc) for acc, *_ in ranks], K) / size
    torch.testing.assert_close(ranks[0][1], expected)
    assert all(exchanged.num_messages == costs.gtopk(1, 1, size).messages for *_, exchanged in ranks)


def test_as_published_gtopk_loses_what_a_merge_drops_of_an_element_that_wins() -> None:
    ranks = on_ranks(8, exchange, "gtopk:residual=paper", 300)
    update = ranks[0][1]
    assert torch.equal(update, on_ranks(8, exchange, "gtopk", 300)[0][1]), "the update is the same"
    missing = sum(acc - residual for acc, _, residual, _ in ranks) - 8 * update
    assert missing.abs().max() > 0.5, "gradient is lost"
    for acc, _, residual, exchanged in ranks:
        cleared = (selected(acc, 300) != 0) & (update != 0)
        assert torch.equal(residual, acc.where(~cleared, torch.zeros(()))), "cleared where it was selected and won"
        assert torch.equal(exchanged.sent.long(), cleared.nonzero().flatten())


@pytest.mark.parametrize("k", [K, N // 3])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_topk_dsa_sums_all_selections(size: int, k: int) -> None:
    ranks = on_ranks(size, exchange, "topk-dsa", k)
    torch.testing.assert_close(ranks[0][1], sum(selected(acc, k) for acc, *_ in ranks) / size)


def test_topk_dsa_costs_the_least_where_all_select_alike_and_no_more_than_dense_where_sums_fill_up() -> None:
    size = 6
    for k, same in ((K, True), (K, False), (N // 3, False), (N - 1, False)):
        ends = costs.topk_dsa_range(4 * N, k / N, size)
        bound = ends.least.bytes if same else ends.most.bytes
        for *_, exchanged in on_ranks(size, exchange, "topk-dsa", k, same):
            # Lengths, counts and first indices: 24 bytes for each block that a rank sends on. A coded index is 1.2 to
            # 2 bytes, so that equal selections cost less than the form says, which counts 4.
            assert exchanged.num_bytes <= bound + 24 * 2 * (size - 1)
