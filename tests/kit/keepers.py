"""A job's keepers for tests: real processes, which a test may kill and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import grpc
from trimtab.checkpoint.keeper.client import KeeperClient
from trimtab.checkpoint.keeper.memory_store import MemoryStore
from trimtab.launch.environment.ports import free_ports
from trimtab_api.names import TLS_VARIABLE
from trimtab_api.rpc.certificates import Certificates
from trimtab_api.rpc.channels import open_channel


class Keepers:
    """One process each, behind Unix sockets; with a folder of certificates, at ports of this machine."""

    def __init__(
        self, num: int, size: str = "100MB", hosts: Sequence[str] = (), certificates: Path | None = None
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="keepers-"))  # a test's own path may be too long for a socket
        self._size, self._hosts = size, [*hosts, *[""] * (num - len(hosts))]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._certificates = certificates
        sockets = tuple(f"unix:{self._folder}/{worker}" for worker in range(num))
        self.addresses = sockets if certificates is None else tuple(f"localhost:{port}" for port in free_ports(num))

    def __enter__(self) -> Keepers:
        for worker in range(len(self.addresses)):
            self._begin(worker)
        for worker in self._processes:
            self.wait_for(worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill(*self._processes)
        for file in self._folder.iterdir():
            file.unlink()
        self._folder.rmdir()

    def start(self, worker: int) -> None:
        """Start a keeper that was killed, and wait until it answers."""
        self._begin(worker)
        self.wait_for(worker)

    def kill(self, *workers: int) -> None:
        """Kill keepers by SIGKILL."""
        for worker in [*workers]:
            process = self._processes.pop(worker)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=30)

    def freeze(self, worker: int) -> None:
        """Stop a keeper by SIGSTOP: it takes connections and answers none."""
        os.kill(self._processes[worker].pid, signal.SIGSTOP)

    def store(self, worker: int = 0, warnings: list[str] | None = None) -> MemoryStore:
        """The store as a process of this worker has it."""
        warn = (lambda text: None) if warnings is None else warnings.append
        return MemoryStore([*map(KeeperClient, range(len(self.addresses)), self.addresses)], worker, warn)

    def wait_for(self, worker: int) -> None:
        """Wait until a keeper takes connections."""
        certificates = None if self._certificates is None else Certificates.read(self._certificates)
        with open_channel(self.addresses[worker], certificates) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)

    def _begin(self, worker: int) -> None:
        argv = [sys.executable, "-m", "trimtab", "keeper", "--listen", self.addresses[worker], "--bytes", self._size]
        argv += ["--host", self._hosts[worker]] if self._hosts[worker] else []
        variables = {} if self._certificates is None else {TLS_VARIABLE: str(self._certificates)}
        self._processes[worker] = subprocess.Popen(argv, env={**os.environ, **variables}, stdout=subprocess.DEVNULL)
