"""Dense all-reduces whose values cross in bfloat16: half the bytes, and nothing lost."""

from __future__ import annotations

import pytest
import torch
from cases import GRADIENTS
from on_ranks import Member, on_ranks, run
from torch import Tensor
from trimtab import collectives
from trimtab.plan import Plan
from trimtab_api import catalogue
from trimtab_api.catalogue import DENSE_COLLECTIVES
from trimtab_api.errors import UserError


def exchange(member: Member, scheme: str, n: int, gradient: str = "normal", chunk_bytes: int = 1 << 19):
    """Accumulation, update, residual and what was told of one exchange, with a vote of three."""
    member.transport.chunk_bytes = chunk_bytes
    random = torch.Generator().manual_seed(member.rank)
    grad, residual = GRADIENTS[gradient](torch.randn(2, n, generator=random)).unbind()
    next_residual, out = torch.full_like(grad, torch.nan), torch.full_like(grad, torch.nan)
    vote = torch.tensor([1.0, 2.0**-20, 1e-30]) * (member.rank + 1)
    exchange = collectives.Exchange(grad, residual, next_residual, out, (0, n), (n,), 0, wire="bfloat16")
    exchanged = run(member.make(scheme), exchange, None, vote)
    return grad + residual, out, next_residual, exchanged


def check_conservation(ranks: list[tuple[Tensor, Tensor, Tensor, collectives.Exchanged]]) -> None:
    size, accs = len(ranks), torch.stack([acc for acc, *_ in ranks]).double()
    update = ranks[0][1]
    residuals = torch.stack([residual for _, _, residual, _ in ranks]).double()
    missing = accs.sum(0) - size * update.double() - residuals.sum(0)
    assert (missing.abs() <= 4 * size * (2**-24 * accs.abs().sum(0) + 2**-149)).all()
    for _, out, residual, exchanged in ranks:
        assert torch.equal(out, update), "the same bits on every rank"
        assert exchanged.squared_norm_after == pytest.approx(residual.double().square().sum().item(), rel=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12])
@pytest.mark.parametrize("scheme", DENSE_COLLECTIVES)
def test_what_a_rounding_takes_stays_with_the_rank_that_rounds(scheme: str, size: int) -> None:
    for n, chunk_bytes in ((1, 1 << 19), (50, 12), (1009, 1 << 19)):
        check_conservation(on_ranks(size, exchange, scheme, n, "normal", chunk_bytes))


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_gradients_of_any_size_conserve(gradient: str) -> None:
    for scheme in DENSE_COLLECTIVES:
        check_conservation(on_ranks(4, exchange, scheme, 600, gradient))


@pytest.mark.parametrize("scheme", DENSE_COLLECTIVES)
def test_sums_are_float32_and_so_is_the_vote(scheme: str) -> None:
    ranks = on_ranks(6, exchange, scheme, 5000)
    mean = torch.stack([acc for acc, *_ in ranks]).double().mean(0)
    _, out, _, exchanged = ranks[0]
    assert torch.equal(out, out.to(torch.bfloat16).float()), "the mean itself is what bfloat16 holds"
    # Of independent roundings, each of half a unit in the last of eight bits at most.
    assert (out - mean).square().mean().sqrt() < 2**-9 * 6
    torch.testing.assert_close(exchanged.vote, 21 * torch.tensor([1.0, 2.0**-20, 1e-30]))


@pytest.mark.parametrize("size", [2, 4, 6, 8])
@pytest.mark.parametrize("scheme", DENSE_COLLECTIVES)
def test_it_costs_half_the_bytes(scheme: str, size: int) -> None:
    n = 4800
    cost = catalogue.collective_cost(scheme, 4 * n, 1, size, "bfloat16")
    assert cost.bytes == catalogue.collective_cost(scheme, 4 * n, 1, size).bytes / 2
    told = [exchanged for *_, exchanged in on_ranks(size, exchange, scheme, n)]
    assert {each.num_messages for each in told} == {cost.messages}
    assert max(each.num_bytes for each in told) <= cost.bytes + 2 * 12 * size  # and the vote


def test_only_what_can_send_it_is_asked_to() -> None:
    assert Plan.parse("dense/wire=bfloat16").wire == "bfloat16"
    with pytest.raises(UserError, match="wire: 'bfloat16': ok-topk sends float32"):
        Plan.parse("0.01/ok-topk/wire=bfloat16")
