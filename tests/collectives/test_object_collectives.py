"""Rank 0's tensors on every rank: weights and buffers at the start, optimizers' state where it has no mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from torch import Tensor
from trimtab.launch.joining.host_layout import HostEndpoint
from trimtab.session.announcements import ControlMessages
from trimtab.transport.base import CommunicationError
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import (
    broadcast_json,
    broadcast_tensor,
    broadcast_tensors,
    gather_json,
    json_of,
    tell_json,
)


def together(group: Group) -> tuple[list[Tensor], int, int]:
    """What a rank has after it, and messages that this took it, and one tensor."""
    random = torch.Generator().manual_seed(group.rank)
    tensors = [torch.randn(size, generator=random) for size in ((3,), (), (0,), (2, 2))]
    tensors += [torch.randint(9, (3,), generator=random, dtype=torch.uint8), tensors[-1].t().double()]
    before = group.num_messages
    broadcast_tensors(group, tensors)
    of_all, before = group.num_messages - before, group.num_messages
    broadcast_tensor(group, tensors[0])
    return tensors, of_all, group.num_messages - before


def test_small_tensors_of_any_type_cross_in_one_message(rank_pool: RankPool) -> None:
    ranks = rank_pool.run(3, together)
    for tensors, of_all, of_one in ranks:
        assert all(torch.equal(mine, its) for mine, its in zip(ranks[0][0], tensors, strict=True))
        assert of_all == of_one


def in_order(group: Group) -> list[Tensor]:
    tensors = [torch.full((2, 3, 2, 2), float(group.rank)).to(memory_format=torch.channels_last), torch.ones(2)]
    tensors[0].mul_(torch.arange(12.0).view(1, 3, 2, 2) + 1)
    if group.rank == 0:
        tensors[0] += torch.arange(24.0).view(2, 3, 2, 2)
    broadcast_tensors(group, tensors)
    return tensors


def test_tensors_that_lie_in_another_order_keep_it(rank_pool: RankPool) -> None:
    for own, _ in rank_pool.run(2, in_order):
        assert torch.equal(own, torch.arange(24.0).view(2, 3, 2, 2))
        assert own.is_contiguous(memory_format=torch.channels_last)


GOOD_CARD = HostEndpoint("machine", "10.0.0.1", "eth0", 29401, True).to_json()
BAD_CARDS: list[Any] = [
    None,
    [],
    {},
    {**GOOD_CARD, "port": "29401"},
    {**GOOD_CARD, "port": 0},
    {**GOOD_CARD, "address": "host; rm"},
    {**GOOD_CARD, "interface": "x" * 5000},
    {**GOOD_CARD, "has_iperf3": "yes"},
]


def refusals(group: Group) -> list[str]:
    """What this rank is told of rank 1's or rank 0's nonsense, of each kind of message."""

    class Nonsense:
        """A controller's client that asks for what is no plan."""

        has_message = True

        def poll(self) -> Any:
            return self

        def to_json(self) -> Any:
            return {"adopt": {"fusion": 7}}

        def sent(self) -> None: ...

    def told(act: Any) -> None:
        with pytest.raises(CommunicationError) as refusal:
            act()
        said.append(str(refusal.value))

    said: list[str] = []
    for bad in BAD_CARDS:
        told(lambda bad=bad: gather_json(group, bad if group.rank == 1 else GOOD_CARD, HostEndpoint.read))
    told(lambda: broadcast_json(group, {"a": 1}, json_of(str | None)))
    told(tell_json(group, {"a": 1}, json_of(str | None)))
    told(ControlMessages(group, Nonsense() if group.rank == 0 else None).receive)  # type: ignore[arg-type]
    assert gather_json(group, GOOD_CARD, HostEndpoint.read) == [HostEndpoint(**GOOD_CARD)] * group.size
    assert broadcast_json(group, [1, 2], json.loads) == [1, 2], "messages are in step after all of this"
    return said


def test_a_rank_that_tells_what_nobody_understands_is_named_on_every_rank(rank_pool: RankPool) -> None:
    for said in rank_pool.run(3, refusals):
        senders = [each.split(":")[0] for each in said]
        assert senders == ["rank 1"] * len(BAD_CARDS) + ["rank 0"] * 3
        assert all("do all ranks run the same version of Trimtab?" in each for each in said)
