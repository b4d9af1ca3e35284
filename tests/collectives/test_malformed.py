"""A peer that belongs to the job and sends nonsense is named and refused: in the mesh and at the rendezvous."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from trimtab.transport.base import CommunicationError, StepTag, parted
from trimtab.transport.rendezvous import handshake
from trimtab.transport.rendezvous.handshake import AuthenticationError
from trimtab.transport.rendezvous.handshake_server import run_handshake
from trimtab.transport.rendezvous.mesh import Listener, connect
from trimtab.transport.rendezvous.tcp import meet
from trimtab.transport.tcp import SocketTransport

SECRET = b"what the ranks know"
PATIENCE = 600.0
HEADER = struct.Struct("<IIQQ")
MESSAGE, WAITING, ABORTING = 0x7472696D, 0x77616974, 0x6F766572
HUGE = 1 << 62
NUMBERS = st.one_of(st.sampled_from([0, 1, 2, 77, 512, 1 << 31, (1 << 32) - 1]), st.integers(0, (1 << 32) - 1))
LENGTHS = st.one_of(st.sampled_from([0, 4, 511, 512, 513, 1 << 33, HUGE]), st.integers(0, (1 << 64) - 1))
FRAMES = st.builds(
    lambda kind, number, step_tag, length, payload: HEADER.pack(kind, number, step_tag, length) + payload,
    st.sampled_from([MESSAGE, WAITING, ABORTING, 0]),
    NUMBERS,
    st.sampled_from([0, 1, (1 << 64) - 1]),
    LENGTHS,
    st.binary(max_size=600),
)
CARDS: dict[str, bytes] = {
    "no text": b"",
    "no JSON": b"{",
    "no unicode": b"\xff\xfe",
    "a number": b"7",
    "a list": b'[{"host": "127.0.0.1"}]',
    "too deep": b"[" * 100_000,
}


def ends() -> tuple[socket.socket, socket.socket]:
    """Of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    return near, far


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(FRAMES, min_size=1, max_size=3), st.booleans())
def test_whatever_frames_a_peer_sends_it_is_named_and_nothing_is_allocated_for_them(
    frames: list[bytes], knows_size: bool
) -> None:
    near, far = ends()
    third, fourth = ends()
    transport = SocketTransport(0, {1: near, 2: third}, deadline=60.0)
    with far, third, fourth:
        far.sendall(b"".join(frames))
        far.close()
        refusal = None
        for _ in frames:
            refusal = refusal or refused(transport, knows_size)
        transport.close()
    assert refusal is None or refusal.peer == 1 or (refusal.peer < 3 and "reported by rank 1" in str(refusal))


def refused(transport: SocketTransport, knows_size: bool) -> CommunicationError | None:
    try:
        transport.receive(1, torch.empty(1)) if knows_size else transport.receive_bytes(1)
    except CommunicationError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (HEADER.pack(WAITING, 77, 0, 0), r"rank 1: sent that it waits for rank 77 of 2; do all ranks run the same"),
        (HEADER.pack(WAITING, 0, 0, 9), "rank 1: sent that it waits"),
        (HEADER.pack(ABORTING, 0, 0, HUGE), rf"rank 1: sent a last frame of {HUGE} bytes"),
        (HEADER.pack(ABORTING, 0, 0, 512) + struct.pack("<i508s", 9, b"why"), "rank 1: sent that rank 9 of 2 is at"),
        (HEADER.pack(ABORTING, 0, 0, 512) + struct.pack("<i508s", -1, b"why"), "rank 1: sent that rank -1 of 2 is at"),
        (HEADER.pack(ABORTING, 0, 0, 512) + struct.pack("<i508s", 1, b"a\x1b[2J\nb"), r"rank 1: a\\x1b\[2J\\nb"),
        (HEADER.pack(MESSAGE, 0, 0, HUGE), rf"rank 1: sent a message of {HUGE} bytes, more than this machine's memory"),
        (HEADER.pack(1, 0, 0, 0), r"rank 1: sent a frame of an unknown kind \(0x1\)"),
    ],
)
def test_a_frame_that_no_rank_sends_is_refused_in_words(frame: bytes, said: str) -> None:
    near, far = ends()
    transport = SocketTransport(0, {1: near}, deadline=60.0)
    with far:
        far.sendall(frame)
        with pytest.raises(CommunicationError, match=said):
            transport.receive_bytes(1)
        transport.close()


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=4), st.binary(max_size=40), st.integers(1, 4))
def test_blocks_are_what_their_lengths_say_or_their_sender_is_named(
    lengths: list[int], blocks: bytes, count: int
) -> None:
    content = struct.pack(f"<{len(lengths)}q", *lengths) + blocks
    message = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    says = struct.unpack_from(f"<{count}q", content) if len(content) >= 8 * count else ()
    if says and min(says) >= 0 and sum(says) == len(content) - 8 * count:
        assert [part.numel() for part in parted(message, count, sender=3)] == list(says)
        return
    with pytest.raises(CommunicationError, match=f"rank 3: sent {count} blocks"):
        parted(message, count, sender=3)


@given(st.binary(max_size=80), st.booleans())
def test_a_message_that_is_no_json_is_a_stranger_s(text: bytes, is_sealed: bool) -> None:
    key = b"k" * 32
    proof = handshake._digest(key, b"endpoint", text) if is_sealed else bytes(32)
    end = handshake.unseal(key, b"endpoint")
    next(end)
    try:
        value = json.loads(text)
        is_right = is_sealed
    except ValueError:
        is_right = False
    ended: StopIteration | AuthenticationError | None = None
    for part in (struct.pack("<I", len(text)), proof, text):
        try:
            end.send(part)
        except (StopIteration, AuthenticationError) as error:
            ended = error
            break
    assert isinstance(ended, StopIteration if is_right else AuthenticationError)
    assert not isinstance(ended, StopIteration) or ended.value == value


def knock(port: int, sealed: bytes) -> None:
    """Come to rank 0 as rank 1, which one is, with something else than a endpoint."""
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)) as connection:
            key = run_handshake(connection, handshake.call(SECRET, b"rendezvous", 1), time.monotonic() + PATIENCE)
            proof = handshake._digest(key, b"endpoint", sealed)
            connection.sendall(struct.pack("<I", len(sealed)) + proof + sealed)
            with contextlib.suppress(ConnectionResetError):
                connection.recv(1)
            return


@pytest.mark.parametrize("text", CARDS.values(), ids=CARDS)
def test_a_rank_that_brings_no_card_is_hung_up_on_or_named(text: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(meet, "127.0.0.1", port, 0, 2, PATIENCE, secret=SECRET, endpoint={"of": 0})
        threads.submit(knock, port, text).result(30)
        try:
            is_object = isinstance(json.loads(text), dict | list | int)
        except (ValueError, RecursionError):
            is_object = False
        if is_object:  # of JSON, and no endpoint
            with pytest.raises(CommunicationError, match="rank 1: sent no endpoint"):
                first.result(30)
            return
        second = threads.submit(meet, "127.0.0.1", port, 1, 2, PATIENCE, secret=SECRET, endpoint={"of": 1})
        assert first.result(30).endpoints == second.result(30).endpoints == [{"of": 0}, {"of": 1}]


ATTEMPT = "0" * 32
TOLD: list[Any] = [
    7,
    [],
    {},
    {"missing": 3},
    {"missing": [77]},
    {"missing": ["1"]},
    {"endpoints": [{}], "attempt": ATTEMPT},
    {"endpoints": [{}, 3], "attempt": ATTEMPT},
    {"endpoints": [{}, {}]},
    {"endpoints": [{}, {}], "attempt": 5},
    {"endpoints": [{}, {}], "attempt": "zz" * 16},
    {"endpoints": [{}, {}], "attempt": ATTEMPT * 1000},
]


@pytest.mark.parametrize("told", TOLD, ids=map(str, range(len(TOLD))))
def test_rank_0_that_tells_nonsense_is_named(told: Any) -> None:
    def first(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            _, key = run_handshake(connection, handshake.answer(SECRET, b"rendezvous"), time.monotonic() + PATIENCE)
            run_handshake(connection, handshake.unseal(key, b"endpoint"), time.monotonic() + PATIENCE)
            connection.sendall(handshake.seal(key, b"all", told))

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        answering = threads.submit(first, listener)
        port = int(listener.getsockname()[1])
        with pytest.raises(CommunicationError, match="rank 0: sent no"):
            meet("127.0.0.1", port, 1, 2, PATIENCE, secret=SECRET, endpoint={})
        answering.result(30)


@pytest.mark.parametrize(
    "endpoint",
    [{}, {"host": "127.0.0.1"}, {"host": 5, "port": 5}, {"host": "x" * 300, "port": 5}, {"host": "a", "port": "5"}],
)
def test_a_card_without_an_address_is_its_rank_s(endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    listener = Listener.open(2)
    with pytest.raises(CommunicationError, match="rank 0: sent no address"):
        connect(1, [endpoint, listener.endpoint], listener, SECRET, b"a", 5.0)


@pytest.mark.parametrize("elsewhere", [{"step": 8}, {"plan_version": 4}, {"trial": 1}])
def test_a_message_of_another_step_plan_or_trial_is_not_taken_for_one_of_this(elsewhere: dict[str, int]) -> None:
    here = StepTag(step=7, plan_version=3, trial=0)
    near, far = ends()
    transport = SocketTransport(0, {1: near}, deadline=60.0)
    transport.step_tag = here
    with far:
        for step_tag in (here, replace(here, **elsewhere)):
            far.sendall(HEADER.pack(MESSAGE, 0, step_tag.code, 4) + b"\0" * 4)
        transport.receive_bytes(1)
        transport.sequence = 0
        with pytest.raises(CommunicationError, match="the ranks disagree"):
            transport.receive_bytes(1)
        transport.close()
