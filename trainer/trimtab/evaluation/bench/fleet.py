"""Run one Python module on N emulated hosts and read what rank 0 prints."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any

from trimtab_api.errors import UserError
from trimtab_netmon.emulate import Emulator, Network, available

from trimtab.launch.processes.interrupts import interruptible, pause
from trimtab.launch.processes.trainer_command import KEEP_FREED_MEMORY
from trimtab.process.messages import LOGGER

MASTER_PORT = 29400


def run_on_hosts(network: Network, num_hosts: int, module: str, arguments: Sequence[str], timeout: float) -> Any:
    """Run ``python -m module arguments`` on hosts of ``network``; return the JSON that rank 0 printed last.

    Says on stderr where the relay was late, so that times are not to be trusted.

    Raises:
        UserError: The emulator cannot work here, a rank fails (with its last line), or ``timeout`` seconds are over.
        Interrupted: A signal came.
    """
    reason = available()
    if reason is not None:
        raise UserError(reason, field="emulator")
    with interruptible(), contextlib.ExitStack() as stack:
        emulator = stack.enter_context(Emulator(network, hosts=num_hosts, name="bench"))
        emulator.begin()
        logs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(num_hosts)]
        processes = []
        for rank, host in enumerate(emulator.hosts):
            environment = {
                **os.environ,
                **KEEP_FREED_MEMORY,
                "RANK": str(rank),
                "WORLD_SIZE": str(num_hosts),
                "LOCAL_RANK": "0",
                "MASTER_ADDR": emulator.hosts[0].address,
                "MASTER_PORT": str(MASTER_PORT),
                "GLOO_SOCKET_IFNAME": host.device,
                "OMP_NUM_THREADS": "1",
                "PYTHONUNBUFFERED": "1",  # what it said last stands last
            }
            process = subprocess.Popen(
                emulator.command(rank, [sys.executable, "-m", module, *arguments]),
                env=environment,
                stdout=logs[rank],
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_kill, process)
            processes.append(process)
        _wait(processes, logs, timeout)
        report = emulator.lag()
        if not report.valid:
            LOGGER.warning(f"these times are not valid, because the emulator could not keep up: {report.describe()}")
        return json.loads(_lines(logs[0])[-1])


def _wait(processes: Sequence[subprocess.Popen[bytes]], logs: Sequence[IO[str]], timeout: float) -> None:
    """Wait until every rank has ended well; the first that has not ends it all."""
    deadline = time.monotonic() + timeout
    while None in (codes := [process.poll() for process in processes]) and not any(codes):
        if time.monotonic() > deadline:
            raise UserError(f"did not end within {timeout:g} s; ask for less", field="bench")
        pause(0.05)
    for rank, code in enumerate(codes):
        if code:
            words = (_lines(logs[rank]) or ["it said nothing"])[-1]
            raise UserError(f"rank {rank} ended with exit code {code}: {words}", field="bench")


def _lines(log: IO[str]) -> list[str]:
    log.seek(0)
    return log.read().strip().splitlines()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
