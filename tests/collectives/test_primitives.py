"""The classic collectives: what they compute, how often and how much they send."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.distributed as dist
from cases import SIZES, WIRED
from kit.rank_pool import RankPool
from kit.rank_threads import RankThreads
from only_device_tensors import over
from trimtab.transport import primitives
from trimtab.transport.base import Transport
from trimtab.transport.group import Group
from trimtab.transport.recursive_halving import doubling_all_gather
from trimtab.transport.rendezvous.mesh import connect_process_group
from trimtab_api.catalogue import costs

CHUNKS = (8, 100, 1 << 19)
ALL_REDUCES = primitives.ALL_REDUCE
CLOSED_FORMS = {"ring": costs.ring_all_reduce, "tree": costs.tree_all_reduce, "halving": costs.halving_all_reduce}
Ranks = RankPool | RankThreads
ALL_GATHERS = {"bruck": primitives.all_gather, "doubling": doubling_all_gather}


def all_reduce(transport: Transport, shape: str, lengths: tuple[int, ...], chunk_bytes: int):
    """Whole numbers, whose sums are exact: rank r holds r, r + 1, ... over the pieces; and what it cost."""
    transport.chunk_bytes = chunk_bytes
    pieces = list((torch.arange(sum(lengths), dtype=torch.float32) + transport.rank).split(lengths))
    bytes_before = transport.num_bytes
    chain = ALL_REDUCES[shape](transport, pieces)
    return torch.cat(pieces), chain, transport.num_bytes - bytes_before


def broadcast(transport: Transport, root: int, length: int, chunk_bytes: int):
    transport.chunk_bytes = chunk_bytes
    data = (torch.arange(length) % 251).to(torch.uint8) if transport.rank == root else None
    bytes_before = transport.num_bytes
    received, chain = primitives.broadcast(transport, data, root)
    return received, chain, transport.num_bytes - bytes_before


def all_gather(transport: Transport, lengths: tuple[int, ...], rounds: str = "bruck"):
    data = torch.full((lengths[transport.rank],), transport.rank, dtype=torch.uint8)
    bytes_before = transport.num_bytes
    blocks, chain = ALL_GATHERS[rounds](transport, data)
    return blocks, chain, transport.num_bytes - bytes_before


def all_to_all(transport: Transport):
    """Rank r sends rank p r + 1 times p in so many bytes; nothing to rank 0."""
    messages = [torch.full((peer and transport.rank + 1,), peer, dtype=torch.uint8) for peer in range(transport.size)]
    received, chain = primitives.all_to_all(transport, [(message[:1], message[1:]) for message in messages])
    return [message.tolist() for message in received], chain


def on_group(group: Group, function, *arguments):
    return group.submit(partial(function, group.transport, *arguments)).result(30)


def check_all_reduce(shape: str, ranks: Ranks, size: int) -> None:
    for lengths in ((1,), (0, 1), (5, 0, 2), (200, 3), (97,)):
        for chunk_bytes in CHUNKS:
            expected = size * torch.arange(sum(lengths)) + size * (size - 1) // 2
            for total, _, _ in ranks.run(size, on_group, all_reduce, shape, lengths, chunk_bytes):
                assert torch.equal(total, expected.float())


def check_broadcast(ranks: Ranks, size: int) -> None:
    for root in {0, size // 2, size - 1}:
        for length in (0, 4, 100, 104, 1001):
            for received, _, _ in ranks.run(size, on_group, broadcast, root, length, 100):
                assert torch.equal(received, (torch.arange(length) % 251).to(torch.uint8))


def ring_halves(transport: Transport, length: int):
    """What each half of a ring all-reduce makes of the ranks' r, r + 1, ..., and the chain of both."""
    vector = torch.arange(length, dtype=torch.float32) + transport.rank
    chain = primitives.ring_reduce_scatter(transport, vector)
    start, stop = primitives.share(length, transport.rank, transport.size)
    own = vector[start:stop].clone()
    vector.fill_(-1)
    vector[start:stop] = own
    return own, vector, chain + primitives.ring_all_gather(transport, vector)


def check_ring_halves(ranks: Ranks, size: int) -> None:
    for length in (1, 5, 103):
        expected = (size * torch.arange(length) + size * (size - 1) // 2).float()
        for rank, (own, total, chain) in enumerate(ranks.run(size, on_group, ring_halves, length)):
            assert torch.equal(own, expected[rank * length // size : (rank + 1) * length // size])
            assert torch.equal(total, expected)
            assert chain == 2 * (size - 1)


def check_all_gather(rounds: str, ranks: Ranks, size: int) -> None:
    lengths = tuple((7 * rank) % 5 * 4 for rank in range(size))
    for blocks, chain, num_bytes in ranks.run(size, on_group, all_gather, lengths, rounds):
        if rounds == "doubling":
            assert chain == (costs.topk_a(1, 1, size).messages if size > 1 else 0)
            assert num_bytes <= 2 * size * (max(lengths) + 8)
        assert [block.tolist() for block in blocks] == [[rank] * length for rank, length in enumerate(lengths)]


def check_all_to_all(ranks: Ranks, size: int) -> None:
    for rank, (received, chain) in enumerate(ranks.run(size, on_group, all_to_all)):
        assert received == [[rank] * (source + 1) if rank and source != rank else [] for source in range(size)]
        assert chain == min(1, size - 1), "all leave at once"


CHECKS = {
    **{
        f"all-reduce by {shape} sums all pieces on all ranks": partial(check_all_reduce, shape) for shape in ALL_REDUCES
    },
    **{f"all-gather by {rounds} keeps rank order": partial(check_all_gather, rounds) for rounds in ALL_GATHERS},
    "broadcast reaches every rank from any root": check_broadcast,
    "a ring's halves sum shares and bring them together": check_ring_halves,
    "all-to-all brings each rank what each other has for it": check_all_to_all,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_every_primitive_computes_what_it_promises(
    rank_threads: RankThreads, check: Callable[[Ranks, int], None], size: int
) -> None:
    check(rank_threads, size)


@pytest.mark.parametrize("size", WIRED)
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_sockets_carry_every_primitive(rank_pool: RankPool, check: Callable[[Ranks, int], None], size: int) -> None:
    check(rank_pool, size)


@pytest.mark.parametrize("size", [2, 4, pytest.param(8, marks=pytest.mark.full)])
@pytest.mark.parametrize("shape", ALL_REDUCES)
def test_all_reduce_costs_its_closed_form(rank_pool: RankPool, shape: str, size: int) -> None:
    length = 1024
    outcomes = rank_pool.run(size, on_group, all_reduce, shape, (length,), 1 << 19)
    cost = CLOSED_FORMS[shape](4 * length, size)
    assert {chain for _, chain, _ in outcomes} == {cost.messages}
    # A ring's ranks all send as much; of a tree's, the root is where bytes queue up: as many in as out.
    most = max(num_bytes for _, _, num_bytes in outcomes)
    assert most == (cost.bytes / 2 if shape == "tree" else cost.bytes)
    assert sum(num_bytes for _, _, num_bytes in outcomes) == 2 * (size - 1) * 4 * length


@pytest.mark.parametrize("size", [2, 4, pytest.param(8, marks=pytest.mark.full)])
def test_broadcast_and_all_gather_cost_their_closed_forms_and_the_lengths(rank_pool: RankPool, size: int) -> None:
    outcomes = rank_pool.run(size, on_group, broadcast, 0, 4000, 1 << 19)
    cost = costs.broadcast(4000, size)
    assert {chain for _, chain, _ in outcomes} == {cost.messages}
    assert max(num_bytes for _, _, num_bytes in outcomes) == cost.bytes + 8 * cost.messages

    outcomes = rank_pool.run(size, on_group, all_gather, (4000,) * size)
    cost = costs.all_gather(4000, size)
    assert {chain for _, chain, _ in outcomes} == {cost.messages}
    assert {num_bytes for _, _, num_bytes in outcomes} == {cost.bytes + 8 * (size - 1)}


def own_all_reduce(rank: int, size: int):
    transport = over(connect_process_group(None, deadline=30), torch.device("cpu"))  # as NCCL sums, Gloo does here
    pieces = [torch.arange(5.0) + rank, torch.empty(0), torch.tensor([float(rank)])]
    chains = [primitives.all_reduce(transport, shape, [piece.clone() for piece in pieces]) for shape in ALL_REDUCES]
    primitives.all_reduce(transport, "ring", pieces)
    return pieces, chains


def test_a_backend_that_sums_over_ranks_by_itself_is_asked_to(rank_pool: RankPool) -> None:
    for pieces, chains in rank_pool.run_in_process_group(4, own_all_reduce):
        assert [piece.tolist() for piece in pieces] == [[6.0, 10.0, 14.0, 18.0, 22.0], [], [6.0]]
        assert dict(zip(ALL_REDUCES, chains, strict=True)) == {"ring": 6, "tree": 4, "halving": 4}


def ring_beside_torch(rank: int, size: int, length: int):
    group = Group.connect(None, deadline=30)
    vector = torch.randn(length, generator=torch.Generator().manual_seed(group.rank))
    theirs = vector.clone()
    dist.all_reduce(theirs)
    on_group(group, lambda transport: primitives.ring_all_reduce(transport, [vector]))
    group.close()
    return vector, theirs


@pytest.mark.parametrize("size", [5, pytest.param(12, marks=pytest.mark.full)])
def test_the_ring_agrees_with_torchs_own(rank_pool: RankPool, size: int) -> None:
    for ours, theirs in rank_pool.run_in_process_group(size, ring_beside_torch, 10_007):
        torch.testing.assert_close(ours, theirs)
