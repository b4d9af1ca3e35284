"""Ranks connect though strangers knock at their doors, and only ranks get in."""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from kit.rank_pool import RankPool
from kit.run_processes import wait_until
from trimtab.launch.environment.ports import free_ports
from trimtab.transport.base import CommunicationError
from trimtab.transport.group import Group
from trimtab.transport.primitives import ring_all_reduce
from trimtab.transport.rendezvous import handshake_server, process_group
from trimtab.transport.rendezvous.mesh import Listener, connect
from trimtab.transport.rendezvous.tcp import meet

SECRET = b"what the ranks know"
#: Longer than anything here waits: who is held up by a stranger fails.
PATIENCE = 600.0


@pytest.fixture
def threads() -> Any:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def strangers() -> Any:
    """Connects to a port, says something, and stays; all go at the end."""
    connections = []

    def knock(port: int, says: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(says)
        connections.append(connection)
        return connection

    yield knock
    for each in connections:
        each.close()


def is_open(port: int) -> bool:
    """Whether somebody listens at the port of this machine."""
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in psutil.net_connections("tcp"))


GARBAGE = [b"", b"GET / HTTP/1.1\r\n\r\n" * 10, b"trimtab1" + bytes(100), bytes(1000)]


@pytest.mark.parametrize("says", GARBAGE, ids=["silent", "http", "pretending", "zeros"])
def test_strangers_at_the_rendezvous_delay_nobody(threads: ThreadPoolExecutor, strangers: Any, says: bytes) -> None:
    port = free_ports(1)[0]
    first = threads.submit(meet, "127.0.0.1", port, 0, 2, PATIENCE, secret=SECRET, endpoint={"of": 0})
    wait_until(lambda: is_open(port))
    for _ in range(5):
        strangers(port, says)
    second = threads.submit(meet, "127.0.0.1", port, 1, 2, PATIENCE, secret=SECRET, endpoint={"of": 1})
    for met in (first.result(30), second.result(30)):
        assert met.endpoints == [{"of": 0}, {"of": 1}]
    assert first.result().attempt == second.result().attempt


@pytest.mark.parametrize("says", GARBAGE, ids=["silent", "http", "pretending", "zeros"])
def test_strangers_at_a_rank_s_entrance_delay_nobody(
    threads: ThreadPoolExecutor, strangers: Any, says: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    entrances = [Listener.open(2) for _ in range(2)]
    endpoints = [each.endpoint for each in entrances]
    for _ in range(5):
        strangers(endpoints[0]["port"], says)
    both = [threads.submit(connect, rank, endpoints, entrances[rank], SECRET, b"a", PATIENCE) for rank in range(2)]
    assert exchange(both) == [1.0, 0.0]


def exchange(both: list[Future[Any]]) -> list[float]:
    """What each of two ranks receives of the other."""
    transports = [each.result(30) for each in both]
    for rank, transport in enumerate(transports):
        transport.send(1 - rank, torch.tensor([float(rank)]))
    received = [torch.empty(1), torch.empty(1)]
    for rank, transport in enumerate(transports):
        transport.receive(1 - rank, received[rank])
        transport.close()
    return [each.item() for each in received]


def test_the_oldest_of_too_many_strangers_is_hung_up_on(
    threads: ThreadPoolExecutor, strangers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake_server, "MAX_UNAUTHENTICATED", 3)
    port = free_ports(1)[0]
    first = threads.submit(meet, "127.0.0.1", port, 0, 2, PATIENCE, secret=SECRET, endpoint={})
    wait_until(lambda: is_open(port))
    oldest, *_ = [strangers(port) for _ in range(4)]
    oldest.settimeout(30)
    assert oldest.recv(1) == b""
    threads.submit(meet, "127.0.0.1", port, 1, 2, PATIENCE, secret=SECRET, endpoint={}).result(30)
    first.result(30)


def test_a_stranger_is_hung_up_on_in_time_though_nobody_else_comes(threads: ThreadPoolExecutor, strangers: Any) -> None:
    """A second that it has here."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = strangers(listener.getsockname()[1])

        def nobody() -> Any:
            yield 1

        with handshake_server.HandshakeServer(listener, nobody, patience=1.0) as board:
            ended = threads.submit(board.next, time.monotonic() + PATIENCE)
            silent.settimeout(30)
            assert silent.recv(1) == b""
            strangers(listener.getsockname()[1], b"x")
            ended.result(30)[0].close()


def test_a_rank_of_another_job_is_not_let_in(threads: ThreadPoolExecutor) -> None:
    port = free_ports(1)[0]
    first = threads.submit(meet, "127.0.0.1", port, 0, 2, 2.0, secret=SECRET, endpoint={})
    second = threads.submit(meet, "127.0.0.1", port, 1, 2, 1.0, secret=b"another", endpoint={})
    with pytest.raises(CommunicationError, match=r"rank 0: did not let .* does not know this job's secret"):
        second.result(30)
    with pytest.raises(CommunicationError, match="rank 1: did not come to"):
        first.result(30)


def test_a_rank_of_another_attempt_is_not_let_in(threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    entrances = [Listener.open(2) for _ in range(2)]
    endpoints = [each.endpoint for each in entrances]
    first = threads.submit(connect, 0, endpoints, entrances[0], SECRET, b"this", 2.0)
    second = threads.submit(connect, 1, endpoints, entrances[1], SECRET, b"the one before", 2.0)
    with pytest.raises(CommunicationError, match=r"rank 0: cannot be reached at .* does not know this job's secret"):
        second.result(30)
    with pytest.raises(CommunicationError, match="rank 1: did not connect to this rank in time"):
        first.result(30)


def test_rank_0_says_who_is_missing_each_time_that_changes(threads: ThreadPoolExecutor) -> None:
    port, said = free_ports(1)[0], []
    heard = threading.Event()

    def say(missing: list[int]) -> None:
        said.append(missing)
        heard.set()

    first = threads.submit(meet, "127.0.0.1", port, 0, 3, PATIENCE, secret=SECRET, endpoint={}, say=say)
    assert heard.wait(30)
    others = [threads.submit(meet, "127.0.0.1", port, 2, 3, PATIENCE, secret=SECRET, endpoint={})]
    wait_until(lambda: len(said) == 2)
    others.append(threads.submit(meet, "127.0.0.1", port, 1, 3, PATIENCE, secret=SECRET, endpoint={}))
    for each in (first, *others):
        each.result(30)
    assert said == [[1, 2], [1]]


def test_without_a_secret_ranks_meet_on_this_machine_alone() -> None:
    from trimtab_api.errors import UserError

    with pytest.raises(UserError, match=r"MASTER_ADDR: '192.0.2.1': is not an address of this machine"):
        meet("192.0.2.1", 1, 1, 2, 0.1, secret=b"", endpoint={})


def connecting_with_pickles_forbidden(rank: int, size: int) -> bool:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("something from the network is unpickled")

    kept = pickle.loads, dist.distributed_c10d._unpickler
    pickle.loads = dist.distributed_c10d._unpickler = refuse  # the second is what torch's all_gather_object reads with
    try:
        Group.connect().close()
    finally:
        pickle.loads, dist.distributed_c10d._unpickler = kept
    return True


def test_nothing_from_the_network_is_unpickled(rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(2, connecting_with_pickles_forbidden) == [True, True]


def connecting_behind_strangers(rank: int, size: int, first: int) -> float:
    """Rank 1 comes when a silent stranger is at every door of rank 0, the process ``first``."""
    strangers = []
    if rank == 1:
        wait_until(lambda: len(listeners(first)) > len(listeners(os.getpid())))  # its entrance, beside Gloo's own
        strangers = [socket.create_connection(each) for each in listeners(first)]
    group = Group.connect()
    received = group.submit(lambda: ring_of_ones(group)).result(30)
    group.close()
    assert bool(strangers) == bool(rank)
    return received


def ring_of_ones(group: Group) -> float:
    total = torch.ones(1)
    ring_all_reduce(group.transport, [total])
    return float(total)


def test_ranks_of_a_process_group_are_not_held_up_by_strangers(
    rank_pool: RankPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.rank_pool.SECONDS_TO_ANSWER", 60.0)
    rank_pool.run(2, ring_of_ones)
    assert rank_pool.run_in_process_group(2, connecting_behind_strangers, rank_pool.processes[0].pid) == [2.0, 2.0]


def forming(group: Group, port: int) -> tuple[float, set[str]]:
    process_group.form("gloo", "127.0.0.1", port, group.rank, group.size, 60.0, secret=SECRET)
    total = torch.ones(1)
    dist.all_reduce(total)
    return float(total), {host for host, _ in listeners(os.getpid())}


def listeners(process: int) -> list[tuple[str, int]]:
    connections = psutil.Process(process).net_connections("tcp")
    return [tuple(each.laddr) for each in connections if each.status == psutil.CONN_LISTEN]


def test_the_store_of_a_process_group_opens_on_the_ranks_own_address_alone(rank_pool: RankPool) -> None:
    for total, listening in rank_pool.run(2, forming, free_ports(1)[0]):
        assert total == 2.0
        assert listening <= {"127.0.0.1"}
