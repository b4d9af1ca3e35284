"""Ranks of a transport that exchange among themselves, beside others that do the same."""

from __future__ import annotations

import pytest
import torch
from kit.rank_pool import RankError, RankPool
from trimtab.transport import primitives
from trimtab.transport.group import Group
from trimtab.transport.subgroup import Subgroup
from trimtab_api.catalogue import costs


def sum_in_rows_then_columns(group: Group, width: int):
    """Ranks stand in rows of ``width``: both sums of the powers of 2, and what was counted where."""

    def job():
        transport = group.transport
        row, column = divmod(transport.rank, width)
        rows = Subgroup(transport, range(row * width, (row + 1) * width))
        # Downwards, so that a rank's number in the subset is not its place in the order of all.
        columns = Subgroup(transport, range(column, transport.size, width)[::-1])
        before = transport.num_bytes
        value = torch.tensor([2.0**transport.rank])
        chain = primitives.ring_all_reduce(rows, [value])
        in_row = value.item()
        primitives.ring_all_reduce(columns, [value])
        blocks, _ = primitives.all_gather(columns, torch.tensor([row], dtype=torch.uint8))
        counted = rows.num_bytes + columns.num_bytes
        return (
            in_row,
            value.item(),
            torch.cat(blocks).tolist(),
            chain,
            rows.num_bytes,
            counted,
            transport.num_bytes - before,
        )

    return group.submit(job).result(30)


@pytest.mark.parametrize("width", [2, 3])
def test_subsets_side_by_side_sum_and_gather_and_both_views_count(rank_pool: RankPool, width: int) -> None:
    for rank, outcome in enumerate(rank_pool.run(6, sum_in_rows_then_columns, width)):
        in_row, total, rows, chain, row_bytes, counted, sent = outcome
        first = rank // width * width
        assert in_row == sum(2**peer for peer in range(first, first + width))
        assert total == 2**6 - 1
        assert rows == list(range(6 // width))[::-1]
        assert chain == costs.ring_all_reduce(4, width).messages
        assert 0 < row_bytes < counted == sent


def break_off(group: Group):
    """Of two teams one finishes and waits for the other, whose rank 3 fails."""

    def job() -> None:
        team = group.rank // 2
        own, across = (
            Subgroup(group.transport, ranks)
            for ranks in ((2 * team, 2 * team + 1), (group.rank % 2, group.rank % 2 + 2))
        )
        if group.rank == 3:
            own.abort(own.rank, "stands still")
        primitives.all_gather(own, torch.empty(0, dtype=torch.uint8))
        primitives.all_gather(across, torch.empty(0, dtype=torch.uint8))

    group.submit(job).result(30)


def test_a_subset_that_fails_is_named_to_every_rank(rank_pool: RankPool) -> None:
    for rank in range(4):
        rank_pool.tell(rank, break_off, 4)
    for rank in range(3):
        with pytest.raises(RankError) as caught:
            rank_pool.answer(rank)
        assert caught.value.peer == 3
        assert "stands still" in caught.value.message
    rank_pool.close()


class Alone:
    rank, size = 2, 4


@pytest.mark.parametrize("ranks", [(0, 1), (2, 2), ()])
def test_a_subset_holds_its_own_rank_and_each_once(ranks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="each rank once"):
        Subgroup(Alone(), ranks)
