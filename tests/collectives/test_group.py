"""A group: buffers cross in order, and a failure anywhere is everyone's, soon and by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest
import torch
from cases import Case, run_case
from kit.rank_pool import RankError, RankPool
from trimtab import collectives
from trimtab.collectives.base import Exchange
from trimtab.transport.base import CommunicationError
from trimtab.transport.group import Group
from trimtab.transport.primitives import ring_all_reduce, tree_all_reduce
from trimtab_api.catalogue import COLLECTIVES


def exchange_of_constants(values: list[float]) -> Exchange:
    grad = torch.tensor(values)
    n = grad.numel()
    return Exchange(
        grad,
        torch.zeros(n),
        torch.empty(n),
        torch.empty(n),
        (0, n),
        (n,),
        step=0,
    )


def many_in_flight(group: Group, schemes: tuple[str, ...]) -> list[list[float]]:
    from trimtab import sparsifiers

    exchanges = [exchange_of_constants([10.0 * i + group.rank] * (i + 1)) for i in range(len(schemes))]
    handles = [
        collectives.create(scheme, group).exchange(exchange, sparsifiers.create("topk"))
        for scheme, exchange in zip(schemes, exchanges, strict=True)
    ]
    for handle in reversed(handles):  # in whatever order they are waited for
        handle.wait(30)
    return [exchange.out.tolist() for exchange in exchanges]


def test_many_buffers_are_in_flight_at_once(rank_pool: RankPool) -> None:
    schemes = COLLECTIVES * 3
    for outs in rank_pool.run(4, many_in_flight, schemes):
        assert outs == [[10.0 * i + 1.5] * (i + 1) for i in range(len(schemes))]


def not_finite(group: Group, scheme: str, value: float) -> float:
    from trimtab import sparsifiers

    exchange = exchange_of_constants([1.0, value if group.rank == 1 else 2.0, 3.0])
    norm: Future[float] = Future()
    handle = collectives.create(scheme, group).exchange(
        exchange, sparsifiers.create("topk"), lambda: torch.tensor([norm.result(30)])
    )
    norm.set_result(handle.prepared.result(30).squared_norm_before)
    return handle.wait(30).vote.item()


@pytest.mark.parametrize("scheme", COLLECTIVES)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_reaches_everyone_in_the_vote(
    rank_pool: RankPool, scheme: str, value: float
) -> None:
    votes = rank_pool.run(3, not_finite, scheme, value)
    assert not any(torch.isfinite(torch.tensor(votes)))


@pytest.fixture
def four() -> Iterator[RankPool]:
    """Ranks that a test may break."""
    fresh = RankPool()
    yield fresh
    fresh.close()


@pytest.fixture
def four_impatient() -> Iterator[RankPool]:
    """The same, who wait two seconds for each other."""
    fresh = RankPool(deadline=2.0)
    yield fresh
    fresh.close()


def all_reduce_for_ever(group: Group, shape: str) -> None:
    all_reduce = {"ring": ring_all_reduce, "tree": tree_all_reduce}[shape]
    while True:
        group.submit(lambda: all_reduce(group.transport, [torch.ones(300_000)])).result(30)


def some_rounds(group: Group) -> None:
    for _ in range(3):
        group.submit(lambda: ring_all_reduce(group.transport, [torch.ones(10)])).result(30)


def failures(pool: RankPool, of: set[int]) -> dict[int, RankError]:
    found = {}
    for rank in of:
        with pytest.raises(RankError) as failure:
            pool.answer(rank)
        found[rank] = failure.value
    return found


@pytest.mark.parametrize("shape", ["ring", "tree"])
def test_when_a_rank_dies_every_other_names_it(four: RankPool, shape: str) -> None:
    four.run(4, some_rounds)
    for rank in range(4):
        four.tell(rank, all_reduce_for_ever, 4, shape)
    os.kill(four.processes[2].pid, signal.SIGKILL)
    for failure in failures(four, {0, 1, 3}).values():
        assert failure.kind is CommunicationError
        assert failure.peer == 2
        assert failure.message.startswith("rank 2: connection to 127.0.0.1 lost")


def test_when_a_rank_stands_still_every_other_names_it_after_the_deadline(four_impatient: RankPool) -> None:
    four = four_impatient
    four.run(4, some_rounds)
    for rank in range(4):
        four.tell(rank, all_reduce_for_ever, 4, "ring")
    os.kill(four.processes[2].pid, signal.SIGSTOP)
    for failure in failures(four, {0, 1, 3}).values():
        assert failure.kind is CommunicationError
        assert failure.peer == 2
        assert "nothing for 2 s (127.0.0.1): stalled or cut off" in failure.message


@pytest.mark.namespaces
@pytest.mark.parametrize(
    ("under_way", "said"),
    [
        ("nothing", "rank 1: connection to 127.0.0.1 lost"),
        ("sending", "rank 1: its machine acknowledged nothing for 3 s (127.0.0.1): gone or cut off"),
    ],
)
def test_a_machine_that_is_gone_is_noticed_long_before_the_deadline(under_way: str, said: str) -> None:
    assert on_a_loopback_of_its_own(under_way).startswith(said)


@pytest.mark.namespaces
def test_a_machine_that_is_there_is_not_gone_though_its_buffers_stay_full_until_the_deadline() -> None:
    said = on_a_loopback_of_its_own("full")
    assert said.startswith("rank 1: sent nothing for 9 s (127.0.0.1): stalled or cut off")


def on_a_loopback_of_its_own(under_way: str) -> str:
    """What the end that is still there says."""
    script = Path(__file__).with_name("peer_liveness_process.py")
    command = ["unshare", "--net", sys.executable, str(script), under_way]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout


def all_reduce_or_fail(group: Group, failing_rank: int) -> None:
    def job() -> None:
        if group.rank == failing_rank:
            raise ValueError("no such tensor")
        ring_all_reduce(group.transport, [torch.ones(10)])

    group.submit(job).result(30)


def test_when_a_job_fails_on_one_rank_the_others_hear_why(four: RankPool) -> None:
    for rank in range(4):
        four.tell(rank, all_reduce_or_fail, 4, 1)
    heard = failures(four, {0, 1, 2, 3})
    assert heard[1].kind is ValueError
    for rank in (0, 2, 3):
        assert heard[rank].peer == 1
        assert heard[rank].message.startswith("rank 1: failed: ValueError: no such tensor")
    with pytest.raises(RankError, match="no such tensor"):  # a broken group stays broken
        four.run(4, some_rounds)


@pytest.mark.parametrize("scheme", ["dense-ring", "dense-tree"])
def test_ranks_that_disagree_about_a_buffers_size_find_out(four: RankPool, scheme: str) -> None:
    for rank in range(4):
        four.tell(rank, run_case, 4, Case(scheme, segments=(0, 100 + rank), k=(10,)))
    for failure in failures(four, {0, 1, 2, 3}).values():
        assert failure.kind is CommunicationError
        assert "the ranks disagree about the plan" in failure.message


def test_the_jobs_of_a_group_run_in_the_order_submitted_on_one_thread(rank_pool: RankPool) -> None:
    (seen,) = rank_pool.run(1, order_and_threads)
    assert seen[0] == list(range(50))
    assert seen[1] == 1


def order_and_threads(group: Group) -> tuple[list[int], int]:
    order: list[int] = []
    threads = set()

    def job(i: int) -> None:
        order.append(i)
        threads.add(threading.get_ident())

    for future in [group.submit(partial(job, i)) for i in range(50)]:
        future.result(30)
    return order, len(threads)


def close_one_after_another(group: Group) -> str:
    some_rounds(group)
    group.close()
    return "left"


def test_a_group_is_left_without_a_word_of_complaint(four: RankPool) -> None:
    assert four.run(4, close_one_after_another) == ["left"] * 4


def expecting_more(group: Group) -> str:
    """Rank 1 has had enough after some rounds; the others go on."""
    some_rounds(group)
    if group.rank == 1:
        group.close()
        return "left"
    try:
        some_rounds(group)
    except CommunicationError as error:
        return str(error)
    return "went on"


def test_who_expects_more_of_a_rank_that_has_closed_is_told_so(four: RankPool) -> None:
    said = four.run(4, expecting_more)
    assert said.pop(1) == "left"
    for each in said:
        assert each.startswith("rank 1: has closed its session, and takes part in no further step")


def test_an_unknown_scheme_is_a_users_mistake() -> None:
    from trimtab_api.errors import UserError

    with pytest.raises(UserError, match="collective: 'dense-star': not known; choose from dense-ring"):
        collectives.create("dense-star", None)
