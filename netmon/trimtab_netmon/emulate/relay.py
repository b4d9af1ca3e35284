"""The relay process seen from Python: its commands, its answers, its report. Its code is in ``relay.c``."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab_netmon.emulate import namespaces
from trimtab_netmon.emulate.schedule import Network

#: Seconds the relay has for an answer; it needs microseconds, a machine under load some more.
ANSWER_TIMEOUT = 10.0
#: Seconds past its due time at which a packet counts as late.
LATE = 1e-3
#: The part of packets, and of heartbeats, that may be late in a valid run.
LATE_ALLOWANCE = 1e-2


class RelayError(RuntimeError):
    """The relay ended or did not answer; the message holds its last words."""


@dataclass(frozen=True)
class Lag:
    """The relay's lag in seconds past the due times, since the schedule began."""

    samples: int
    late: int
    """Samples more than `LATE` behind."""
    p50: float
    p99: float
    p999: float
    """The 99.9th percentile."""
    max: float

    @property
    def late_fraction(self) -> float:
        """The part of the samples that were late."""
        return self.late / self.samples if self.samples else 0.0


@dataclass(frozen=True)
class HostTraffic:
    """Traffic of one host since the schedule began: sent, received, and dropped on the way."""

    sent_packets: int
    sent_bytes: int
    received_packets: int
    received_bytes: int
    dropped_egress: int
    """Packets that found its egress backlog full."""
    dropped_link: int
    """Packets of its own that found a link's backlog full."""
    dropped_ingress: int
    """Packets to it that found its ingress backlog full."""
    unroutable: int
    """Packets it sent to no host of this network."""


@dataclass(frozen=True)
class RelayReport:
    """The relay's figures since the schedule began."""

    scheduling: str
    """``fifo``: ahead of every ordinary process; ``nice`` or ``normal``: it may have to wait for a core."""
    phase: int
    """Index of the phase in force."""
    cpu_seconds: float
    """CPU time since the relay started, packet processing of the kernel on the hosts' behalf included."""
    packet_lag: Lag
    """Over packets delivered."""
    heartbeat_lag: Lag
    """Over a timer of one per millisecond: the part of the time in which a packet would have been late."""
    hosts: tuple[HostTraffic, ...]

    @property
    def valid(self) -> bool:
        """True if the network was as asked: 99% of the packets, and of the time, were less than 1 ms late.

        The allowance is for machines that stand still for some milliseconds now and then, as virtual ones do. The
        99.9th percentile and the maximum are in the report.
        """
        return max(self.packet_lag.late_fraction, self.heartbeat_lag.late_fraction) <= LATE_ALLOWANCE

    def describe(self) -> str:
        """Describe the lag in one line for a person."""
        lag = self.packet_lag
        verdict = "valid" if self.valid else "INVALID: the relay was late, the network was not as asked"
        return (
            f"{verdict}; lag of {lag.samples} packets: p99 {lag.p99 * 1e3:.2f} ms, p99.9 {lag.p999 * 1e3:.2f} ms, "
            f"max {lag.max * 1e3:.2f} ms; stalled {self.heartbeat_lag.late_fraction:.2%} of the time"
        )


class Relay:
    """A running relay. Its commands may come from any thread."""

    def __init__(self, binary: Path, device: str, first_address: str, namespace_names: list[str]) -> None:
        self._lock = threading.Lock()
        self._answers = b""
        files = [str(namespaces.path_of(name)) for name in namespace_names]
        self._process = subprocess.Popen(
            [str(binary), str(os.getpid()), device, first_address, str(len(files)), *files, *namespaces.SWEEP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C at the terminal is for the owner alone
        )
        self._expect("open")

    def configure(self, network: Network, num_hosts: int) -> None:
        """Hand over the schedule and put its first phase in force."""
        self._ask("\n".join(commands(network, num_hosts)), "ready")

    def begin(self) -> float:
        """Start the schedule's clock; return its beginning on `time.monotonic`."""
        return int(self._ask("begin", "begun")) / 1e9

    def report(self) -> RelayReport:
        """Return the relay's figures so far."""
        return _report(json.loads(self._ask("report", "")))

    def stop(self) -> None:
        """End the relay, and with it the devices."""
        with contextlib.suppress(RelayError):  # it may have ended already
            self._send("quit")
        try:
            self._process.wait(ANSWER_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()

    def _ask(self, command: str, answer: str) -> str:
        with self._lock:
            self._send(command)
            return self._expect(answer)

    def _send(self, command: str) -> None:
        assert self._process.stdin is not None
        data = memoryview(f"{command}\n".encode())
        try:
            while data:
                data = data[self._process.stdin.write(data) :]
        except (BrokenPipeError, ValueError):
            raise self._ended() from None

    def _expect(self, word: str) -> str:
        """Wait for a line that begins with ``word``; return the rest of it."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while b"\n" not in self._answers:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise RelayError(f"the network emulator's relay did not answer within {ANSWER_TIMEOUT:.0f} s")
            read = self._process.stdout.read(65536)
            if not read:
                raise self._ended()
            self._answers += read
        line, _, self._answers = self._answers.partition(b"\n")
        text = line.decode()
        if not text.startswith(word):
            raise RelayError(f"the network emulator's relay answered {text!r} where {word!r} was due")
        return text.removeprefix(word).strip()

    def _ended(self) -> RelayError:
        try:
            code = self._process.wait(ANSWER_TIMEOUT)
        except subprocess.TimeoutExpired:
            return RelayError("the network emulator's relay closed its output")
        assert self._process.stderr is not None
        words = self._process.stderr.read() if not self._process.stderr.closed else b""
        return RelayError(f"the network emulator's relay ended: {words.decode().strip() or f'exit code {code}'}")


def commands(network: Network, num_hosts: int) -> Iterator[str]:
    """Yield the schedule in the relay's language: every host and every directed link of every phase."""
    for phase in network.phases:
        yield f"phase {max(1, round(phase.duration * 1e9))}"
        for host in range(num_hosts):
            yield f"host {host} {phase.host_bandwidth(host):.3f}"
        for source in range(num_hosts):
            for destination in range(num_hosts):
                latency = math.ceil(phase.link_latency(source, destination) * 1e9)
                bandwidth = phase.link_bandwidth(source, destination) or 0.0
                yield f"link {source} {destination} {latency} {bandwidth:.3f}"
    yield f"ready {'repeat' if network.repeat else 'hold'}"


def _report(answer: dict[str, Any]) -> RelayReport:
    return RelayReport(
        **{
            **answer,
            "packet_lag": Lag(**answer["packet_lag"]),
            "heartbeat_lag": Lag(**answer["heartbeat_lag"]),
            "hosts": tuple(HostTraffic(**host) for host in answer["hosts"]),
        }
    )
