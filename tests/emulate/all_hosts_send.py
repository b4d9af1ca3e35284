"""What the emulator gives where all hosts send in a ring and every core is kept busy, by ping and iperf3."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab_api.units import parse_bandwidth, parse_duration
from trimtab_netmon.emulate import Emulator, Network, Phase, RelayReport

SECONDS = 6
SETTLING_SECONDS = 2
PINGS = 40
PORT = 5201


@dataclass(frozen=True)
class Figures:
    """What one case gave."""

    ping_idle: float
    """Median round trip in seconds, nobody else sending."""
    ping_full: float
    """Median round trip in seconds, every host sending all it can."""
    slowest: float
    fastest: float
    """Bytes per second that a receiver of the ring got."""
    relay_cpu: float
    """Cores that the relay used in the ring."""
    endpoint_cpu: float
    """Cores that an iperf3 client and its server used together, mean over the ring."""
    report: RelayReport


def measure(network: Emulator) -> Figures:
    """All of one case."""
    with busy_cores():
        ping_idle = ping(network)
        network.begin()
        before = network.lag().cpu_seconds
        started = time.monotonic()
        with ring(network, f"-t{SECONDS}", f"-O{SETTLING_SECONDS}") as clients:
            time.sleep(SETTLING_SECONDS)
            ping_full = ping(network)
            ends = [result_of(client) for client in clients]
        relay_cpu = (network.lag().cpu_seconds - before) / (time.monotonic() - started)
    received = [end["sum_received"]["bits_per_second"] / 8 for end in ends]
    usage = [sum(end["cpu_utilization_percent"][side] for side in ("host_total", "remote_total")) for end in ends]
    return Figures(
        ping_idle,
        ping_full,
        min(received),
        max(received),
        relay_cpu,
        sum(usage) / len(usage) / 100,
        network.lag(),
    )


def steady(latency: str, bandwidth: str) -> Network:
    """A network that stays as it is."""
    return Network((Phase(60.0, parse_duration(latency), parse_bandwidth(bandwidth)),))


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """A loop on every core."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def ping(network: Emulator) -> float:
    """Median round trip from host 0 to host 1, seconds."""
    argv = network.command(0, ["ping", "-c", str(PINGS), "-i", "0.1", network.hosts[1].address])
    output = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    times = sorted(float(found) for found in re.findall(r"time=([\d.]+)", output))
    return times[len(times) // 2] / 1e3


@contextlib.contextmanager
def ring(network: Emulator, *options: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Every host sends to the next one, at the same time."""
    hosts = range(len(network.hosts))
    with contextlib.ExitStack() as stack:
        for host in hosts:
            stack.enter_context(listening_server(network, host))
        yield [stack.enter_context(start_client(network, i, (i + 1) % len(hosts), PORT, *options)) for i in hosts]


@contextlib.contextmanager
def listening_server(network: Emulator, host: int, port: int = PORT) -> Iterator[None]:
    """An iperf3 server on a host, ready for one client."""
    argv = network.command(host, ["iperf3", "-s", "-1", "-p", str(port), "--forceflush"])
    with running(argv) as server:
        assert server.stdout
        while "listening" not in (line := server.stdout.readline()):
            assert line, "iperf3 did not start"
        yield


@contextlib.contextmanager
def start_client(
    network: Emulator, source: int, destination: int, port: int, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """An iperf3 client on one host that sends to another."""
    address = network.hosts[destination].address
    with running(network.command(source, ["iperf3", "-c", address, "-p", str(port), "-J", *options])) as client:
        yield client


@contextlib.contextmanager
def running(argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive the context."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def result_of(client: subprocess.Popen[str]) -> dict:
    """What an iperf3 client found, once it is done."""
    return json.loads(client.communicate(timeout=60)[0])["end"]
