"""Where the workers live: a host each on an emulated network, or all of them on loopback."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from trimtab_netmon.emulate import Emulator, Phase

#: Ports in a worker's own namespace, where nothing else listens.
MASTER_PORT = 29500
MONITOR_PORT = 29400
#: Of ports on loopback: the first that is anybody's, the last that has one above it, the first that kernels usually
#: give to outgoing connections, and fewer than which are too few to choose from.
_FIRST_PORT, _LAST_PORT, _USUAL_FIRST_LENT, _FEW_PORTS = 10000, 65535, 32768, 1000


@dataclass(frozen=True)
class Place:
    """One worker's address on the network that it shares with the others."""

    address: str
    interface: str
    monitor_port: int


class Places(Protocol):
    """The workers' places, one each, and the network between them."""

    workers: list[Place]
    master_port: int
    """Free on the first worker's address."""
    emulated: bool

    def command(self, worker: int, argv: Sequence[str]) -> list[str]:
        """What to run so that ``argv`` runs at that worker's place."""
        ...

    def begin(self) -> None:
        """Start the network's schedule: now is time zero."""
        ...

    def observe(self) -> None:
        """Write down the network's phase if it changed since the last call."""
        ...

    def fault(self) -> str | None:
        """Why the network is no longer there; None while it is."""
        ...

    def verdict(self) -> dict[str, Any] | None:
        """How well the network was emulated, ``valid`` among it; None where nothing is emulated."""
        ...


class Loopback(AbstractContextManager["Loopback"]):
    """All workers on 127.0.0.1, on ports that were free a moment ago."""

    emulated = False

    def __init__(self, num_workers: int) -> None:
        self.master_port, *monitor_ports = free_ports(num_workers + 1)
        self.workers = [Place("127.0.0.1", "lo", port) for port in monitor_ports]

    def __exit__(self, *_: object) -> None:
        """Nothing was set up."""

    def command(self, worker: int, argv: Sequence[str]) -> list[str]:
        """``argv`` itself."""
        return list(argv)

    def begin(self) -> None:
        """Loopback has no schedule."""

    def observe(self) -> None:
        """Loopback has no phases."""

    def fault(self) -> None:
        """Loopback does not fail."""

    def verdict(self) -> None:
        """Nothing is emulated."""


class Emulated(AbstractContextManager["Emulated"]):
    """Every worker on a host of its own, on an emulated network whose phases are written to a file as they come."""

    emulated = True
    master_port = MASTER_PORT

    def __init__(self, network: Path, num_workers: int, phases: Path) -> None:
        from trimtab_netmon.emulate import Emulator, load_network

        self._emulator: Emulator = Emulator(load_network(network), hosts=num_workers)
        self._phases = phases
        self._phase: object = None
        self._begun = False

    def __enter__(self) -> Self:
        self._emulator.__enter__()
        self.workers = [Place(host.address, host.device, MONITOR_PORT) for host in self._emulator.hosts]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._emulator.__exit__(kind, error, trace)

    def command(self, worker: int, argv: Sequence[str]) -> list[str]:
        """Enter the worker's namespace, then run ``argv``."""
        return self._emulator.command(worker, list(argv))

    def begin(self) -> None:
        """Start the schedule; a relay that is gone by now shows in `fault`."""
        from trimtab_netmon.emulate import RelayError

        with suppress(RelayError):
            self._emulator.begin()
            self._begun = True

    def observe(self) -> None:
        """Append the phase in force, as its slowest link, to the phases file when it is a new one."""
        phase = self._emulator.phase
        if not self._begun or phase is self._phase:
            return
        self._phase = phase
        latency, bandwidth = slowest(phase, len(self.workers))
        line = {"time": self._emulator.elapsed, "latency": latency, "bandwidth": bandwidth}
        with self._phases.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def fault(self) -> str | None:
        """What the relay's end left to say; None while it answers."""
        verdict = self.verdict()
        return verdict.get("error")

    def verdict(self) -> dict[str, Any]:
        """The relay's report on itself; a relay that is gone makes the run invalid, and leaves an ``error``."""
        from trimtab_netmon.emulate import RelayError

        try:
            report = self._emulator.lag()
        except RelayError as error:
            return {"valid": False, "error": str(error)}
        return {"valid": report.valid, **asdict(report)}


def slowest(phase: Phase, num_workers: int) -> tuple[float, float]:
    """The largest latency and the smallest bandwidth between any two workers: synchronous training waits for them."""
    latency, bandwidth = phase.latency, min(phase.host_bandwidth(host) for host in range(num_workers))
    for source, destination in permutations(range(num_workers), 2):
        latency = max(latency, phase.link_latency(source, destination))
        bandwidth = min(bandwidth, phase.link_bandwidth(source, destination) or bandwidth)
    return latency, bandwidth


def place(network: Path | None, num_workers: int, phases: Path) -> AbstractContextManager[Places]:
    """An emulated network where one is asked for, loopback otherwise."""
    return Loopback(num_workers) if network is None else Emulated(network, num_workers, phases)


def why_not_emulated() -> str | None:
    """None where networks can be emulated here; otherwise one sentence: what is missing, and what to do."""
    from trimtab_netmon.emulate import available

    return available()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing uses now, nor the port above each, which a monitor needs for iperf3.

    None of them is one that the kernel gives to outgoing connections: such a port may be gone again before the process
    that it is for listens there.
    """
    ports: list[int] = []
    candidates = iter(random.sample(server_ports(), len(server_ports())))
    with ExitStack() as held:  # all at once: a port that was let go could be found again
        while len(ports) < count:
            number = next(candidates)
            port, above = held.enter_context(socket.socket()), held.enter_context(socket.socket())
            with suppress(OSError):  # taken
                port.bind(("127.0.0.1", number))
                above.bind(("127.0.0.1", number + 1))
                ports.append(number)
        return ports


def server_ports(kernels: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> range:
    """Ports that only a process which asks for one by its number gets; all where the kernel leaves few of them."""
    try:
        first = int(kernels.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # no Linux
        first = _USUAL_FIRST_LENT
    return range(_FIRST_PORT, first - 1) if first >= _FIRST_PORT + _FEW_PORTS else range(_FIRST_PORT, _LAST_PORT)
