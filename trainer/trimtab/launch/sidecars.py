"""Processes beside a job's trainers: network monitors, and the servers of the run's status and metrics."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from trimtab_api.units import format_duration

from trimtab.launch.processes.children import METRICS, STATUS, WITH_PARENT, Children, monitor_name
from trimtab.run_files.layout import RunDirectory, best_effort

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

#: Starts its arguments again whenever they end, after a pause that doubles up to half a minute.
_RESTARTING = f"""
pause=1
while :; do
    {shlex.join(WITH_PARENT)} "$@"
    echo "trimtab: the monitor ended with status $?; it is started again in $pause s"
    {shlex.join(WITH_PARENT)} sleep "$pause"
    pause=$((pause < 16 ? pause * 2 : 30))
done
"""


class Sidecars:
    """The servers and monitors of one attempt, among the children of its launcher or of a trainer.

    They print to files, in a pod too. Each may fail, and training goes on. Leaving the context takes away the address
    of the status server; the children end by themselves (`Children`).
    """

    def __init__(self, children: Children, directory: RunDirectory, environment: Mapping[str, str]) -> None:
        self._children, self._directory, self._environment = children, directory, environment
        self._serves_status = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._serves_status:
            self._directory.status_address.unlink(missing_ok=True)

    def start_status(
        self,
        monitor: str | None,
        address: str | None = None,
        *,
        listen: str | None = None,
        job: Path | None = None,
        command: Callable[[list[str]], Sequence[str]] = lambda argv: argv,
    ) -> None:
        """Start the server of the run's status, and write down its address.

        Args:
            monitor: ``HOST:PORT`` of rank 0's monitor, if any.
            address: Where readers reach the server; None: a Unix socket, which any network namespace reaches.
            listen: Where the server listens, if not at the address.
            job: The resolved job; None: that of the run directory.
            command: Makes the command that runs the server in its host's network.
        """
        if address is None:  # not in the run directory, whose path may be too long for a socket
            address = f"unix:{self._children.temporary_directory('trimtab-')}/status"
        argv = [sys.executable, "-m", "trimtab.status.server", "--run", str(self._directory.path)]
        argv += ["--job", str(job or self._directory.job), *([] if monitor is None else ["--monitor", monitor])]
        self._start(STATUS, command([*argv, "--listen", listen or address]))
        with best_effort(self._directory.path):
            self._directory.tell_status_address(address)
        self._serves_status = True

    def start_metrics(self, host: str, port: int) -> None:
        """Start the server of the run's metrics; the run directory must hold its job."""
        argv = [sys.executable, "-m", "trimtab", "metrics", str(self._directory.path)]
        self._start(METRICS, [*argv, "--host", host, "--port", str(port)])

    def start_monitor(self, worker: int, argv: Sequence[str]) -> None:
        """Start a worker's monitor, again whenever it ends: here nothing else looks after it (`Supervisor` does)."""
        self._start(monitor_name(worker), ["sh", "-c", _RESTARTING, "sh", *argv])

    def _start(self, name: str, argv: Sequence[str]) -> None:
        with open_end(self._directory.log(name)) as log:
            self._children.start(name, argv, self._environment, log.fileno())


def monitor_command(
    job: TrainingJob, worker: int, addresses: Sequence[tuple[str, int]], interface: str, metrics_port: int = 0
) -> list[str]:
    """Return the command of one worker's network monitor.

    Args:
        job: Says how the network is measured.
        worker: Number of the monitor's worker.
        addresses: Host and port of every worker's monitor, this one included.
        interface: The network device to measure.
        metrics_port: Where the monitor serves metrics, at its own address; 0: nowhere.
    """
    network, (host, port) = job.spec.network, addresses[worker]
    argv = [sys.executable, "-m", "trimtab_netmon.main", "serve", "--rank", str(worker)]
    argv += ["--peers", ",".join(f"{peer}:{number}" for peer, number in addresses)]
    argv += ["--listen", f"{host}:{port}", "--interface", interface]
    argv += ["--probe-interval", format_duration(network.probe_interval)]
    argv += ["--probe-budget", f"{network.probe_budget:g}"]
    argv += ["--probe-bytes-per-day", f"{network.probe_bytes_per_day}B", "--probe", network.probe]
    return [*argv, "--metrics-port", str(metrics_port)]


def open_end(log: Path) -> IO[bytes]:
    """Open the log for appending; nothing is kept where that cannot be done."""
    with best_effort(log.parent):
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab")
    return open(os.devnull, "ab")
