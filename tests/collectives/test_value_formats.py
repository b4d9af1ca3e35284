"""Values that cross in fewer bits: in bfloat16, or in 8, 4 or 2 bits. Nothing is lost, and ranks get the same bits."""

from __future__ import annotations

import pytest
import torch
from cases import GRADIENTS, SIZES
from on_ranks import Member, on_ranks, run
from torch import Tensor
from trimtab import collectives, sparsifiers
from trimtab.plan.plan import Plan
from trimtab.wire.value_formats import format_of
from trimtab_api import catalogue
from trimtab_api.errors import UserError

ROUNDING = [
    (row.name, wire)
    for row in catalogue.collectives.rows()
    for wire in row.wires
    if not format_of(wire).is_exact and row.name in catalogue.COLLECTIVES
]
DENSE = [(scheme, wire) for scheme, wire in ROUNDING if catalogue.collectives[scheme].is_dense]
WIRES = [name for name in catalogue.wires.built_in if not format_of(name).is_exact]


def exchange(
    member: Member, scheme: str, wire: str, n: int, gradient: str = "normal", chunk_bytes: int = 1 << 19, k: int = 0
):
    """Accumulation, update, residual and what was told of one exchange, with a vote of three."""
    member.transport.chunk_bytes = chunk_bytes
    random = torch.Generator().manual_seed(member.rank)
    grad, residual = GRADIENTS[gradient](torch.randn(2, n, generator=random)).unbind()
    next_residual, out = torch.full_like(grad, torch.nan), torch.full_like(grad, torch.nan)
    vote = torch.tensor([1.0, 2.0**-20, 1e-30]) * (member.rank + 1)
    k = k or -(-n // 4)
    exchange = collectives.Exchange(grad, residual, next_residual, out, (0, n), (k,), 1, wire=wire)
    selector = None if catalogue.collectives[scheme].is_dense else sparsifiers.create("topk")
    exchanged = run(member.make(scheme), exchange, selector, vote)
    return grad + residual, out, next_residual, exchanged


def check_conservation(ranks: list[tuple[Tensor, Tensor, Tensor, collectives.Exchanged]]) -> None:
    size, accs = len(ranks), torch.stack([acc for acc, *_ in ranks]).double()
    update = ranks[0][1]
    residuals = torch.stack([residual for _, _, residual, _ in ranks]).double()
    missing = accs.sum(0) - size * update.double() - residuals.sum(0)
    # In two bits more may be sent of a value than it is, so what remains counts as well.
    assert (missing.abs() <= 4 * size * (2**-24 * (accs.abs() + residuals.abs()).sum(0) + 2**-149)).all()
    for _, out, residual, exchanged in ranks:
        assert torch.equal(out, update), "the same bits on every rank"
        assert exchanged.squared_norm_after == pytest.approx(
            residual.double().square().sum().item(), rel=1e-4, abs=1e-5 * exchanged.squared_norm_before
        )


@pytest.mark.parametrize(("scheme", "wire"), ROUNDING)
def test_what_a_rounding_takes_stays_with_the_rank_that_rounds(scheme: str, wire: str) -> None:
    for size in SIZES:
        check_conservation(on_ranks(size, exchange, scheme, wire, 203))
    for n, chunk_bytes in ((1, 1 << 19), (50, 12)):
        for size in (2, 3):
            check_conservation(on_ranks(size, exchange, scheme, wire, n, "normal", chunk_bytes))


@pytest.mark.parametrize(("teams", "size"), [(2, 2), (2, 6), (4, 8), (3, 6)])
def test_of_a_sum_that_several_teams_round_alike_each_keeps_its_share(teams: int, size: int) -> None:
    for wire in catalogue.collectives["spardl"].wires[1:]:
        check_conservation(on_ranks(size, exchange, f"spardl:teams={teams}", wire, 203))


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_gradients_of_any_size_conserve(gradient: str) -> None:
    for scheme, wire in ROUNDING:
        check_conservation(on_ranks(4, exchange, scheme, wire, 600, gradient))


@pytest.mark.parametrize(("scheme", "wire"), DENSE)
def test_sums_are_float32_and_so_is_the_vote(scheme: str, wire: str) -> None:
    ranks = on_ranks(6, exchange, scheme, wire, 5000)
    mean = torch.stack([acc for acc, *_ in ranks]).double().mean(0)
    _, out, _, exchanged = ranks[0]
    # Of independent roundings, each of half a unit in the last of so many bits at most; a block's largest is near 4.
    unit = {"bfloat16": 2**-8, "int8": 4 / 127, "int4": 4 / 7}[wire]
    assert (out - mean).square().mean().sqrt() < unit / 2 * 6
    torch.testing.assert_close(exchanged.vote, 21 * torch.tensor([1.0, 2.0**-20, 1e-30]))


@pytest.mark.parametrize(("scheme", "wire"), ROUNDING)
def test_it_saves_the_bytes_that_the_model_says(scheme: str, wire: str) -> None:
    n, size, row = 16_000, 4, catalogue.collectives[scheme]
    ratio = 1.0 if row.is_dense else 0.1
    cost, exact = (catalogue.collective_cost(scheme, 4 * n, ratio, size, each) for each in (wire, "float32"))
    told, whole = (
        on_ranks(size, exchange, scheme, each, n, "normal", 1 << 19, round(ratio * n))[0][-1]
        for each in (wire, "float32")
    )
    assert told.num_messages == whole.num_messages == cost.messages == exact.messages
    # A tree's chain passes half of the bytes up to rank 0, and half down from it.
    of_rank_0 = (exact.bytes - cost.bytes) / (2 if row.pattern == "tree" else 1)
    # ExDyna's ranks select a few percent more or fewer.
    assert whole.num_bytes - told.num_bytes == pytest.approx(of_rank_0, rel=0.03)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("scale", [1.0, 1e-38, 1e-42, 1e20, 0.0])
def test_a_block_is_never_changed_by_more_than_it_is(wire: str, scale: float) -> None:
    form, random = format_of(wire), torch.Generator().manual_seed(1)
    for count in (0, 1, 2, 3, 63, 64, 65, 1000):
        values = scale * torch.randn(count, generator=random) * torch.randn(count, generator=random).exp()
        coded = form.encode(values)
        assert coded.numel() == form.num_bytes(count)
        read = form.decode(coded, count)
        assert torch.linalg.vector_norm(values - read) <= 1.0001 * torch.linalg.vector_norm(values)
        if wire != "int2":  # whose values are not passed on
            assert torch.equal(form.decode(form.encode(read), count), read), "rounded once is rounded for good"


@pytest.mark.parametrize(("wire", "most"), [("bfloat16", 0.002), ("int8", 0.008), ("int4", 0.15), ("int2", 0.4)])
def test_how_much_of_normal_values_rounding_takes(wire: str, most: float) -> None:
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(1))
    form = format_of(wire)
    error = values - form.decode(form.encode(values), values.numel())
    assert most / 2 < torch.linalg.vector_norm(error) / torch.linalg.vector_norm(values) < most


def test_only_what_can_send_it_is_asked_to() -> None:
    assert Plan.parse("dense/wire=bfloat16").wire == "bfloat16"
    assert Plan.parse("0.01/all-gather/wire=int2").name == "0.01/all-gather/wire=int2"
    with pytest.raises(UserError, match="wire: 'int2': spardl:teams=2 sends float32 or bfloat16 or int8 or int4"):
        Plan.parse("0.01/spardl:teams=2/wire=int2")
    with pytest.raises(UserError, match="wire: 'int2': dense-ring sends float32 or bfloat16 or int8 or int4"):
        Plan.parse("dense/wire=int2")
