"""Nothing of the CPU is handed to a backend that takes tensors of a device alone."""

from __future__ import annotations

import json

import pytest
import torch
from kit.rank_pool import RankError, RankPool
from only_device_tensors import DEVICE, OnDevice, only_device_tensors, over
from trimtab.transport import primitives
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import barrier, broadcast_json, broadcast_tensors, gather_numbers
from trimtab.transport.rendezvous.mesh import connect_process_group
from trimtab.wire import index_code


def device_group(rank: int) -> Group:
    return Group(over(connect_process_group(None, deadline=30), DEVICE))


def messages(rank: int, size: int):
    """What ranks say to each other beside gradients."""
    with only_device_tensors():
        group = device_group(rank)
        try:
            weights = torch.full((3,), float(rank), device=DEVICE)
            counts = torch.tensor([rank])  # a buffer that the model keeps on the CPU
            broadcast_tensors(group, [weights, counts])
            barrier(group)
            told = broadcast_json(group, {"adopt": "dense"} if rank == 0 else None, json.loads)
            return told, gather_numbers(group, rank), weights.tolist(), counts.tolist()
        finally:
            group.close()


def sums(rank: int, size: int):
    with only_device_tensors():
        group = device_group(rank)
        try:
            piece = torch.full((4,), float(rank), device=DEVICE)
            group.submit(lambda: primitives.all_reduce(group.transport, "ring", [piece])).result(30)
            mine = torch.full((4 * rank,), rank, dtype=torch.uint8, device=DEVICE)
            blocks, _ = group.submit(lambda: primitives.all_gather(group.transport, mine)).result(30)
            assert all(isinstance(each, OnDevice) for each in blocks)
            return piece.tolist(), [block.tolist() for block in blocks]
        finally:
            group.close()


def a_sum_of_the_cpu(rank: int, size: int):
    with only_device_tensors():
        group = device_group(rank)
        try:
            group.submit(lambda: primitives.all_reduce(group.transport, "ring", [torch.zeros(4)])).result(30)
        finally:
            group.close()


@pytest.mark.parametrize("size", [2, 3])
def test_what_ranks_say_beside_gradients_lies_on_the_device(rank_pool: RankPool, size: int) -> None:
    for told, numbers, weights, counts in rank_pool.run_in_process_group(size, messages):
        assert told == {"adopt": "dense"}
        assert numbers == list(range(size))
        assert (weights, counts) == ([0.0] * 3, [0])


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_lie_on_the_device(rank_pool: RankPool, size: int) -> None:
    for total, blocks in rank_pool.run_in_process_group(size, sums):
        assert total == [size * (size - 1) / 2] * 4
        assert blocks == [[rank] * 4 * rank for rank in range(size)]


def test_the_stand_in_refuses_what_nccl_refuses(rank_pool: RankPool) -> None:
    with pytest.raises(RankError, match="No backend type associated with device type cpu"):
        rank_pool.run_in_process_group(2, a_sum_of_the_cpu)


def test_a_devices_indices_are_coded_as_the_cpus() -> None:
    indices = torch.arange(3, 3000, 7, dtype=torch.int32)
    with only_device_tensors():
        coded = index_code.encode(indices.to(DEVICE))
        decoded = index_code.decode(coded)
    assert isinstance(coded, OnDevice)
    assert isinstance(decoded, OnDevice)
    assert coded.tolist() == index_code.encode(indices).tolist()
    assert decoded.tolist() == indices.tolist()
