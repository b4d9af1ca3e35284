"""The command lines of what runs beside a job's trainers: network monitors, the servers of its status and metrics."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from trimtab_api.units import format_duration


def monitor_command(
    worker: int,
    addresses: Sequence[tuple[str, int]],
    interface: str,
    *,
    probe_interval: float,
    probe_budget: float,
    probe_bytes_per_day: int,
    probe: str,
    metrics_port: int = 0,
) -> list[str]:
    """The monitor of one worker; ``addresses`` are those of every worker's, this one included. It serves metrics at
    ``metrics_port`` of its own address, unless that is 0.
    """
    host, port = addresses[worker]
    argv = [sys.executable, "-m", "trimtab_netmon.main", "serve", "--rank", str(worker)]
    argv += ["--peers", ",".join(f"{each}:{number}" for each, number in addresses)]
    argv += ["--listen", f"{host}:{port}", "--interface", interface]
    argv += ["--probe-interval", format_duration(probe_interval), "--probe-budget", f"{probe_budget:g}"]
    argv += ["--probe-bytes-per-day", f"{probe_bytes_per_day}B", "--probe", probe]
    return [*argv, "--metrics-port", str(metrics_port)]


def status_command(directory: Path, job: Path, monitor: str | None, address: str) -> list[str]:
    """The process that serves the status of the run in ``directory`` at ``address``, beside rank 0's monitor if any."""
    argv = [sys.executable, "-m", "trimtab.status.server", "--run", str(directory), "--job", str(job)]
    argv += [] if monitor is None else ["--monitor", monitor]
    return [*argv, "--listen", address]


def metrics_command(directory: Path, host: str, port: int) -> list[str]:
    """The process that serves the metrics of the run in ``directory``, which must hold its job."""
    argv = [sys.executable, "-m", "trimtab", "metrics", str(directory)]
    return [*argv, "--host", host, "--port", str(port)]
