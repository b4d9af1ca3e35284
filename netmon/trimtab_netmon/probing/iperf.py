"""iperf3 as a child process: one server for one test, one client that is stopped when enough has been seen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from asyncio.subprocess import DEVNULL, PIPE, Process

from trimtab_api.errors import UserError
from trimtab_api.socket_buffers import largest_buffer

from trimtab_netmon.probing.engines import NUM_STREAMS, PATIENCE, START_PATIENCE, SpoiledError, TestError, has_iperf3
from trimtab_netmon.probing.proc_files import busiest_thread_seconds, connected_to, is_listening, transferred_bytes
from trimtab_netmon.settings import Endpoint

log = logging.getLogger("trimtab_netmon")

#: Seconds between the rates that iperf3 reports.
INTERVAL = 0.1
#: Seconds between two looks at who is connected.
_LOOK_INTERVAL = 0.1
#: Seconds before the second look whether a server listens; the later ones are further apart.
_SHORTEST_PAUSE = 0.005
#: The first version that a malformed message does not end (CVE-2024-53580).
LEAST_ROBUST = (3, 18)

#: A child dies with its monitor, however that ends.
_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


def require_iperf3() -> None:
    """Check that iperf3, and the program that ends it with its monitor, are installed.

    Raises:
        UserError: If one of them is not.
    """
    for program, package in (("iperf3", "iperf3"), (_WITH_PARENT[0], "util-linux")):
        if shutil.which(program) is None:
            raise UserError(
                f"{program} is not installed; install it (Debian: apt-get install {package}) to measure bandwidth"
            )


def installed_version() -> str:
    """Return the version of the iperf3 that is installed, such as ``3.18``; empty if it does not say."""
    try:
        said = subprocess.run(["iperf3", "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.match(r"iperf (\d+\.\d+\S*)", said.stdout)
    return match[1] if match else ""


def is_fragile(version: str) -> bool:
    """Return whether a malformed message ends upstream's iperf3 of a version; a distribution may have fixed it."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < LEAST_ROBUST


def log_engine(probe: str) -> None:
    """Log which engine sends this host's tests, given the job's ``network.probe``, and the version of iperf3."""
    if probe == "native" or not has_iperf3():
        log.info("bandwidth tests use the native engine")
        return
    version = installed_version()
    log.info("bandwidth tests use iperf3 %s", version or "of an unknown version")
    if is_fragile(version):
        log.warning(
            "iperf3 %s: a malformed message from any host can crash versions before %d.%d, unless the"
            " distribution backported the fix; install a newer one, or set spec.network.probe to native",
            *(version, *LEAST_ROBUST),
        )


class IperfServer:
    """An iperf3 server for one test, at a random port of one address.

    iperf3 cannot be told whom to accept, and one malformed message ends versions before 3.18. So a test fails if the
    server dies, and if anybody but the sender connects.
    """

    ticket = b""

    def __init__(self, process: Process, port: int, peer: str) -> None:
        self.port = port
        self._process = process
        self._peer = peer
        self._looked_at = float("-inf")

    @classmethod
    async def start(cls, listen: str, peer: str) -> IperfServer:
        """Start a server for a client at the address ``peer``, ready when this returns.

        Raises:
            TestError: If it does not start.
        """
        port = _free_port(listen)
        process = await asyncio.create_subprocess_exec(
            *(*_WITH_PARENT, "iperf3", "--server", "--one-off", "--json", "--interval", str(INTERVAL)),
            *("--bind", listen, "--port", str(port)),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
        try:
            async with asyncio.timeout(START_PATIENCE):
                pause = _SHORTEST_PAUSE
                while not is_listening(port):
                    if process.returncode is not None:
                        raise TestError(await _complaint(process))
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LOOK_INTERVAL)  # looking takes time from what is starting
        except TimeoutError:
            await stop(process)
            raise TestError(f"iperf3 did not listen on port {port} within {START_PATIENCE:g} s") from None
        except asyncio.CancelledError:  # who wanted the test is gone: nobody else knows of the server
            await asyncio.shield(stop(process))
            raise
        return cls(process, port, peer)

    @property
    def is_over(self) -> bool:
        """True once it receives no more."""
        return self._process.returncode is not None

    @property
    def num_bytes(self) -> int:
        """Bytes that it has received."""
        return transferred_bytes(self._process.pid)

    @property
    def busiest_thread_seconds(self) -> float:
        """Processor seconds of its busiest thread."""
        return busiest_thread_seconds(self._process.pid)

    def require_good(self) -> None:
        """Raise `TestError` if the server died, or anyone but the client is connected to it."""
        if self._process.returncode is not None and self._process.returncode < 0:
            raise SpoiledError(f"iperf3 ended {_how(self._process.returncode)}")
        if self._process.returncode:
            raise TestError(f"iperf3 ended {_how(self._process.returncode)}")
        if time.monotonic() < self._looked_at + _LOOK_INTERVAL:
            return
        self._looked_at = time.monotonic()
        for address in connected_to(self.port) - {self._peer}:
            raise SpoiledError(f"{address} connected to the test's port, which is for {self._peer} alone")

    async def stop(self) -> None:
        """End it."""
        await stop(self._process)


class IperfClient:
    """An iperf3 client."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, target: Endpoint, source: str, limit: float, window: int | None) -> IperfClient:
        """Start a client that sends for ``limit`` seconds (rounded up) unless it is stopped before.

        With a ``window``, each stream keeps at most about so many bytes under way.
        """
        process = await asyncio.create_subprocess_exec(
            *(*_WITH_PARENT, "iperf3", "--client", target.host, "--port", str(target.port), "--json"),
            *("--bind", source, "--parallel", str(NUM_STREAMS), "--time", str(math.ceil(limit))),
            *("--interval", str(INTERVAL), "--connect-timeout", "2000"),
            *(("--window", str(window)) if window else ()),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
        return cls(process)

    @property
    def is_over(self) -> bool:
        """True once it sends no more."""
        return self._process.returncode is not None

    @property
    def failure(self) -> str:
        """The reason why it ended by itself before its time; empty if it did not."""
        return f"iperf3 ended {_how(self._process.returncode)}" if self._process.returncode else ""

    @property
    def busiest_thread_seconds(self) -> float:
        """Processor seconds of its busiest thread."""
        return busiest_thread_seconds(self._process.pid)

    async def stop(self) -> str:
        """End it; return its error messages, which may be those of being ended."""
        said = complaint(await stop(self._process))
        return said and f"iperf3: {said}"


def _how(returncode: int) -> str:
    return f"by signal {-returncode}" if returncode < 0 else f"with code {returncode}"


def _free_port(host: str) -> int:
    """Return a port that is free now; the kernel chooses it at random."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def largest_window() -> int:
    """Return the largest window that this host's kernel grants a stream in both directions, in bytes."""
    return min(largest_buffer(option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF))


async def stop(process: Process) -> str:
    """End a child, by SIGTERM and then by SIGKILL; return its output."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)  # terminate() may reap it before asyncio does, which then complains
    try:
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):  # it may have ended since
            process.kill()
        output, _ = await process.communicate()
    return output.decode(errors="replace")


async def _complaint(process: Process) -> str:
    output, errors = await process.communicate()
    try:
        return f"iperf3: {json.loads(output)['error']}"
    except (ValueError, KeyError):
        return f"iperf3: {(errors or output).decode(errors='replace').strip()[:200]}"


def complaint(report: str) -> str:
    """Return the error in a JSON report; empty if it is only that the process was stopped."""
    try:
        error = str(json.loads(report).get("error", ""))
    except ValueError:
        return report.strip()[:200]
    return "" if "terminated" in error else error
