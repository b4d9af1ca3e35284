"""Run one Python module on N emulated hosts and read what rank 0 prints."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from trimtab_api.errors import UserError
from trimtab_netmon.emulate import Emulator, Network, available

from trimtab.launch.command import KEEP_FREED_MEMORY

MASTER_PORT = 29400


def run_on_hosts(network: Network, num_hosts: int, module: str, arguments: Sequence[str], timeout: float) -> Any:
    """The JSON that rank 0 of ``python -m module arguments`` printed last, run on ``num_hosts`` hosts of ``network``.

    Raises `UserError` where the emulator cannot work here or the relay was late, `RuntimeError` with the last lines
    of a rank that failed.
    """
    reason = available()
    if reason is not None:
        raise UserError(reason, field="emulator")
    with contextlib.ExitStack() as stack:
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
        outputs = []
        for rank, process in enumerate(processes):
            code = process.wait(timeout=timeout)
            logs[rank].seek(0)
            outputs.append(logs[rank].read())
            if code != 0:
                raise RuntimeError(f"rank {rank} of {module} exited with {code}:\n{outputs[rank][-3000:]}")
        return json.loads(outputs[0].strip().splitlines()[-1])


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
