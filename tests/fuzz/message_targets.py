"""What comes over the network: messages of monitors and of rank 0, frames of the mesh, handshakes and echoes."""

from __future__ import annotations

import json
import math
import socket
import struct
from dataclasses import asdict

import torch
from google.protobuf.message import DecodeError
from target import Target, told
from trimtab.control.messages import AdoptPlan, TryPlans, message_of
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.transport import object_collectives
from trimtab.transport.base import CommunicationError
from trimtab.transport.connection import ABORT, ABORTING, HEADER, MESSAGE, WAITING
from trimtab.transport.rendezvous import handshake
from trimtab.transport.rendezvous.handshake import AuthenticationError
from trimtab.transport.tcp import SocketTransport
from trimtab_api.netmon import client
from trimtab_api.netmon.v1 import netmon_pb2
from trimtab_api.trainer.v1 import status_pb2
from trimtab_netmon.links import converters
from trimtab_netmon.links.converters import MalformedReplyError
from trimtab_netmon.links.delta_encoding import StateReader
from trimtab_netmon.probing import echo_packet
from trimtab_operator.rank0.sanitize import Rank0Status

WORKERS, KEY = 4, b"key"


def feed_monitor(data: bytes) -> None:
    """Read what a monitor tells: a state and a change of it, a table of links, and the answer to a test."""
    states = [_parsed(netmon_pb2.NetworkState(), data), _parsed(netmon_pb2.NetworkState(), data[::-1])]
    reader = StateReader()
    for state in filter(None, states):
        whole = reader.merge(state)
        if whole is not None:
            view = client._view_of(whole)
            assert 0 <= view.latency < math.inf
            assert 0 <= view.bandwidth < math.inf
            assert all(0 <= link.latency < math.inf and 0 <= link.bandwidth < math.inf for link in view.links)
    table = _parsed(netmon_pb2.LinkTable(), data)
    if table is not None:
        for (source, target), link in converters.links_from_proto(table, 1, WORKERS).items():
            assert source == 1 != target < WORKERS
            assert 0 <= link.latency.value < math.inf
    answer = _parsed(netmon_pb2.TestBandwidthResponse(), data)
    if answer is not None:
        try:
            measurement, seconds, num_bytes = converters.test_result_from_proto(answer)
        except MalformedReplyError:
            return
        assert 0 < measurement.value < math.inf
        assert 0 <= seconds < math.inf
        assert 0 <= num_bytes < math.inf


def feed_status(data: bytes) -> None:
    """Read what rank 0 tells the operator; no figure of it is infinite, and its text is bounded."""
    said = _parsed(status_pb2.Status(), data)
    if said is None:
        return
    status = Rank0Status.sanitize(said)
    json.dumps(asdict(status), allow_nan=False)
    assert len(status.message) <= 520
    assert "\n" not in status.message


def _parsed(message, data: bytes):
    """Return the message; None for bytes that gRPC refuses before our code sees them."""
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    return message


def feed_frames(data: bytes) -> None:
    """Receive from a peer that sends these bytes and ends; its first byte says what is awaited."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    transport = SocketTransport(0, {1: near}, deadline=5.0)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    far.sendall(data[1:60_000])
    far.shutdown(socket.SHUT_WR)
    try:
        for _ in range(4):
            assert transport.receive_bytes(1).numel() <= len(data)
    except CommunicationError as error:
        told(error, " " if error.peer in (0, 1) else "one of the two ranks")
    finally:
        transport.close()
        far.close()


def feed_handshake(data: bytes) -> None:
    """Take both ends of the handshake, and a sealed message, from a stranger; none lets it in."""
    key = b"k" * 32
    for end in (handshake.call(b"secret", b"mesh", 1), handshake.answer(b"secret", b"mesh")):
        assert not _drive(end, data)
    _drive(handshake.unseal(key, b"mesh"), data)
    text = data[:1000]
    sealed = struct.pack("<I", len(text)) + handshake._digest(key, b"mesh", text) + text
    _drive(handshake.unseal(key, b"mesh"), sealed)


def _drive(end, data: bytes) -> bool:
    """Feed one end until it wants more than there is; return whether it was satisfied."""
    try:
        wanted = next(end)
        while True:
            if isinstance(wanted, bytes):
                wanted = end.send(None)
                continue
            assert wanted <= 1 << 20, "a stranger may not have as much memory kept"
            if len(data) < wanted:
                return False
            given, data = data[:wanted], data[wanted:]
            wanted = end.send(given)
    except StopIteration:
        return True
    except AuthenticationError:
        return False


def feed_echo(data: bytes) -> None:
    """Read a datagram; nothing but a real one has a tag that fits."""
    packet = echo_packet.unpack(KEY, data)
    assert packet is None or echo_packet.pack(KEY, packet) == data
    fields = data[: echo_packet.SIZE - 16]
    packet = echo_packet.unpack(KEY, fields + echo_packet._tag(KEY, fields))
    assert packet is None or len(fields) == echo_packet.SIZE - 16


def feed_control(data: bytes) -> None:
    """Read what rank 0 asks of all ranks; an accepted message comes back as it was."""
    try:
        sent = torch.frombuffer(bytearray(data or b" "), dtype=torch.uint8)
        message = object_collectives._understood(sent, 0, message_of)
    except CommunicationError as error:
        told(error, "that does not say what ranks tell each other")
        return
    if message is not None:
        assert message_of(json.dumps(message.to_json()).encode()) == message


def monitor_messages() -> list[bytes]:
    """Return a state, a change of it, a table and an answer."""
    measurement = netmon_pb2.Measurement(value=0.01, method=1, measured_at_unix_seconds=1e9, age_seconds=2.0)
    links = [
        netmon_pb2.Link(source=i, target=j, latency=measurement, bandwidth=measurement, jitter_seconds=0.001)
        for i in range(2) for j in range(2) if i != j
    ]  # fmt: skip
    summary = netmon_pb2.Summary(latency_seconds=0.01, bandwidth_bytes_per_second=1e8, bandwidth_method=1)
    whole = netmon_pb2.NetworkState(revision=3, num_workers=2, links=links, summary=summary)
    change = netmon_pb2.NetworkState(revision=4, links=links[:1], partial=True, seconds_since_last=1.0)
    answer = netmon_pb2.TestBandwidthResponse(bandwidth_bytes_per_second=1e8, duration_seconds=1.0, sent_bytes=10**8)
    messages = (whole, change, netmon_pb2.LinkTable(source=1, links=links), answer)
    return [message.SerializeToString() for message in messages]


def statuses() -> list[bytes]:
    """Return a status with all that it may hold."""
    plan = status_pb2.Plan(
        version=2, name="0.01/all-gather", ratio=0.01, collective="all-gather", reason="it is faster"
    )
    network = status_pb2.Network(latency_seconds=0.01, bandwidth_bytes_per_second=1e8)
    said = status_pb2.Status(
        state=2, message="m", step=3, loss=1.5, step_seconds=0.5, gain=0.4, plan=plan, network=network
    )
    return [said.SerializeToString()]


def frames() -> list[bytes]:
    """Return a message, an announcement and an abort, as peers send them."""
    message = HEADER.pack(MESSAGE, 0, 0, 4) + b"data"
    return [
        b"\0" + message + HEADER.pack(WAITING, 1, 0, 0) + message,
        b"\0" + HEADER.pack(ABORTING, 0, 0, ABORT.size) + ABORT.pack(1, b"out of memory"),
        b"\0" + HEADER.pack(MESSAGE, 0, 0, 1 << 34), b"\0" + HEADER.pack(MESSAGE, 0, 0, 1 << 62),
    ]  # fmt: skip


def control_messages() -> list[bytes]:
    """Return each message."""
    plan = Plan.parse("0.01/all-gather", FusionPlan((0, 100)))
    asked = [AdoptPlan(plan), TryPlans((plan, Plan.parse("dense", FusionPlan((0,)))), 4)]
    return [json.dumps(each.to_json()).encode() for each in asked] + [b"null"]


TARGETS = [
    Target("monitor", feed_monitor, monitor_messages),
    Target("status", feed_status, statuses),
    Target("frames", feed_frames, frames),
    Target("handshake", feed_handshake, lambda: [b"trimtab1" + bytes(100), b"\x02\0\0\0" + bytes(32) + b"{}"]),
    Target("echo", feed_echo, lambda: [echo_packet.pack(KEY, echo_packet.EchoPacket(1, 0, 1, True, 7, 0))]),
    Target("control", feed_control, control_messages),
]
