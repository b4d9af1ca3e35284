"""The hosts that a local run's workers run on: one each on an emulated network, or all of them on loopback."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from trimtab.launch.environment.ports import free_ports
from trimtab.run_files.layout import best_effort

if TYPE_CHECKING:
    from trimtab_netmon.emulate import Emulator, Phase

#: Ports in a worker's own namespace, where nothing else listens.
MASTER_PORT = 29500
MONITOR_PORT = 29400


@dataclass(frozen=True)
class Host:
    """The host of one worker: its address on the network that it shares with the others."""

    address: str
    interface: str
    monitor_port: int


class Hosts(Protocol):
    """The workers' hosts and the network between them."""

    workers: list[Host]
    """One each, by worker."""
    master_port: int
    """Free on the first worker's address."""
    emulated: bool

    def command(self, worker: int, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` on that worker's host."""
        ...

    def namespace(self, worker: int) -> Path | None:
        """Return the file of that worker's network namespace; None: the launcher's."""
        ...

    def start_schedule(self) -> None:
        """Start the network's schedule: now is time zero."""
        ...

    def log_phase(self) -> None:
        """Write down the network's phase if it changed since the last call."""
        ...

    def failure(self) -> str | None:
        """Return why the emulated network has ended; None while it runs."""
        ...

    def relay_report(self) -> dict[str, Any] | None:
        """Return the relay's report on its delays, and whether they are ``valid``; None where nothing is emulated."""
        ...


class LoopbackHosts(AbstractContextManager["LoopbackHosts"]):
    """All workers on 127.0.0.1, on ports that were free a moment ago."""

    emulated = False

    def __init__(self, num_workers: int) -> None:
        self.master_port, *monitor_ports = free_ports(num_workers + 1)
        self.workers = [Host("127.0.0.1", "lo", port) for port in monitor_ports]

    def __exit__(self, *_: object) -> None:
        """Do nothing: nothing was set up."""

    def command(self, worker: int, argv: Sequence[str]) -> list[str]:
        """Return ``argv`` itself."""
        return list(argv)

    def namespace(self, worker: int) -> None:
        """Return None: all workers share the launcher's network."""

    def start_schedule(self) -> None:
        """Do nothing: loopback has no schedule."""

    def log_phase(self) -> None:
        """Do nothing: loopback has no phases."""

    def failure(self) -> None:
        """Return None: loopback does not fail."""

    def relay_report(self) -> None:
        """Return None: nothing is emulated."""


class EmulatedHosts(AbstractContextManager["EmulatedHosts"]):
    """A host for each worker, on an emulated network whose phases are written to a file as they come into force."""

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
        self.workers = [Host(host.address, host.device, MONITOR_PORT) for host in self._emulator.hosts]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._emulator.__exit__(kind, error, trace)

    def command(self, worker: int, argv: Sequence[str]) -> list[str]:
        """Enter the worker's namespace, then run ``argv``."""
        return self._emulator.command(worker, list(argv))

    def namespace(self, worker: int) -> Path:
        """Return the file of the worker's namespace."""
        return self._emulator.namespace(worker)

    def start_schedule(self) -> None:
        """Start the schedule; `failure` tells where the relay is gone already."""
        from trimtab_netmon.emulate import RelayError

        with suppress(RelayError):
            self._emulator.begin()
            self._begun = True

    def log_phase(self) -> None:
        """Append the phase in force, as its slowest link, to the phases file if it is a new one."""
        phase = self._emulator.phase
        if not self._begun or phase is self._phase:
            return
        self._phase = phase
        latency, bandwidth = slowest(phase, len(self.workers))
        line = {"time": self._emulator.elapsed, "latency": latency, "bandwidth": bandwidth}
        with best_effort(self._phases.parent), self._phases.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def failure(self) -> str | None:
        """Return why the relay ended; None while it answers."""
        return self.relay_report().get("error")

    def relay_report(self) -> dict[str, Any]:
        """Return the relay's report on itself; where the relay is gone, an ``error``, and the run is not ``valid``."""
        from trimtab_netmon.emulate import RelayError

        try:
            report = self._emulator.lag()
        except RelayError as error:
            return {"valid": False, "error": str(error)}
        return {"valid": report.valid, **asdict(report)}


def slowest(phase: Phase, num_workers: int) -> tuple[float, float]:
    """Return the largest latency and smallest bandwidth between any two workers: synchronous steps wait for these."""
    latency, bandwidth = phase.latency, min(phase.host_bandwidth(host) for host in range(num_workers))
    for source, destination in permutations(range(num_workers), 2):
        latency = max(latency, phase.link_latency(source, destination))
        bandwidth = min(bandwidth, phase.link_bandwidth(source, destination) or bandwidth)
    return latency, bandwidth


def make_hosts(network: Path | None, num_workers: int, phases: Path) -> AbstractContextManager[Hosts]:
    """Make hosts on the emulated ``network``, or on loopback where it is None."""
    return LoopbackHosts(num_workers) if network is None else EmulatedHosts(network, num_workers, phases)


def why_not_emulated() -> str | None:
    """Return what is missing to emulate networks here, and what to do; None where they can be emulated."""
    from trimtab_netmon.emulate import available

    return available()
