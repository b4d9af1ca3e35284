"""Between GPUs, whoever waits in a sum of the backend hears who has failed, left or died.

Gloo stands in for NCCL where there is no GPU.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kit.rank_pool import RankPool
from only_device_tensors import over
from trimtab.transport.base import CommunicationError
from trimtab.transport.gpu import GpuTransport
from trimtab.transport.group import Group
from trimtab.transport.primitives import all_reduce
from trimtab.transport.rendezvous.mesh import connect_process_group

#: Far below any deadline.
SECONDS_TO_HEAR = 15.0
BACKENDS = ("gloo", pytest.param("nccl", marks=pytest.mark.cuda))


@pytest.fixture(params=BACKENDS)
def pool(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Ranks that a test may break, joined by one backend or the other."""
    fresh = RankPool(backend=request.param)
    yield fresh
    fresh.close()


def group_of(rank: int) -> Group:
    transport = connect_process_group(None, deadline=120)
    return Group(transport if isinstance(transport, GpuTransport) else over(transport, torch.device("cpu")))


def tensor_on(group: Group, value: float) -> torch.Tensor:
    return torch.full((1000,), value, device=group.transport.device)


def summing_with_rank_1(rank: int, size: int, event: str, heard: Path) -> str:
    """What a rank hears that sums with rank 1, which fails, leaves or dies instead; they have summed once before."""
    group = group_of(rank)
    values = tensor_on(group, float(rank))

    def add() -> None:
        all_reduce(group.transport, "ring", [values])

    def fail() -> None:
        raise ValueError("out of memory")

    group.submit(add).result(60)
    assert values.tolist() == [size * (size - 1) / 2] * 1000
    if rank == 1:
        if event == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if event == "fails":
            with pytest.raises(ValueError, match="out of memory"):
                group.submit(fail).result(60)
        group.close()
        return ""
    began = time.monotonic()
    with pytest.raises(CommunicationError) as raised:
        group.submit(add).result(60)
    assert time.monotonic() - began < SECONDS_TO_HEAR
    (heard / str(rank)).write_text(str(raised.value))
    group.close()
    return str(raised.value)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("fails", "rank 1: failed: ValueError: out of memory"),
        ("leaves", "rank 1: has closed its session, and takes part in no further step"),
        ("dies", "rank 1: connection to 127.0.0.1 lost"),
    ],
)
def test_who_sums_with_a_rank_that_is_gone_hears_of_it(pool: RankPool, tmp_path: Path, event: str, said: str) -> None:
    with contextlib.suppress(EOFError, ConnectionResetError):  # a rank that was killed answers nothing
        pool.run_in_process_group(3, summing_with_rank_1, event, tmp_path)
    for rank in (0, 2):
        assert (tmp_path / str(rank)).read_text().startswith(said)


def waiting_for_rank_1(rank: int, size: int, heard: Path) -> str:
    """The same of a message."""
    group = group_of(rank)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(CommunicationError) as raised:
        group.submit(lambda: group.transport.receive(1, tensor_on(group, 0.0))).result(60)
    (heard / str(rank)).write_text(str(raised.value))
    group.close()
    return str(raised.value)


def test_who_waits_for_a_message_of_a_rank_that_was_killed_hears_of_it(pool: RankPool, tmp_path: Path) -> None:
    with contextlib.suppress(EOFError, ConnectionResetError):
        pool.run_in_process_group(2, waiting_for_rank_1, tmp_path)
    assert (tmp_path / "0").read_text().startswith("rank 1: connection to 127.0.0.1 lost")
