"""Whom a rank blames that waits in vain: the rank that stands still, and none of a wait that is over."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from trimtab.transport.base import CommunicationError
from trimtab.transport.connection import HEADER, MESSAGE, WAITING
from trimtab.transport.tcp import SocketTransport

DEADLINE = 2.0


@pytest.fixture
def mesh() -> Iterator[tuple[SocketTransport, dict[int, socket.socket]]]:
    """Rank 0 of four, and the other ranks' ends of its connections."""
    here, there = {}, {}
    for peer in (1, 2, 3):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            here[peer] = socket.create_connection(listener.getsockname())
            there[peer], _ = listener.accept()
    transport = SocketTransport(0, here, DEADLINE)
    yield transport, there
    transport.close()
    for end in there.values():
        end.close()


def message(transport: SocketTransport, values: torch.Tensor) -> bytes:
    header = HEADER.pack(MESSAGE, transport.sequence & 0xFFFFFFFF, transport.step_tag.code, values.nbytes)
    return header + values.numpy().tobytes()


def waiting_for(peer: int) -> bytes:
    return HEADER.pack(WAITING, peer, 0, 0)


def read_now(end: socket.socket) -> bytes:
    end.setblocking(False)
    try:
        return end.recv(1 << 16)
    except BlockingIOError:
        return b""


def test_wait_that_is_over_is_passed_on_to_nobody(mesh: tuple[SocketTransport, dict[int, socket.socket]]) -> None:
    transport, there = mesh
    sent, received = torch.ones(4), torch.zeros(4)
    there[1].sendall(waiting_for(2) + message(transport, sent))
    transport.receive(1, received)
    assert torch.equal(sent, received)
    assert read_now(there[3]) == b""


def test_rank_that_waits_in_vain_tells_and_blames_the_one_that_stands_still(
    mesh: tuple[SocketTransport, dict[int, socket.socket]],
) -> None:
    transport, there = mesh
    there[1].sendall(waiting_for(2))
    with pytest.raises(CommunicationError, match=r"rank 2: sent nothing for 2 s .* \(reported by rank 1\)"):
        transport.receive(1, torch.zeros(4))
    assert waiting_for(2) in read_now(there[3])


def test_what_is_heard_late_in_a_wait_is_passed_on(mesh: tuple[SocketTransport, dict[int, socket.socket]]) -> None:
    transport, there = mesh
    answer = waiting_for(2) + message(transport, torch.ones(4))

    def wait_and_answer() -> None:
        assert there[3].recv(HEADER.size) == waiting_for(1)  # half the deadline is over
        there[1].sendall(answer)

    with ThreadPoolExecutor() as others:
        answering = others.submit(wait_and_answer)
        transport.receive(1, torch.zeros(4))
        answering.result(10)
    assert read_now(there[3]) == waiting_for(2)
