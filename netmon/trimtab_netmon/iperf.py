"""iperf3 as a child process: one server for one test, one client that is stopped when enough has been seen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import shutil
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

from trimtab_api.errors import UserError
from trimtab_api.socket_buffers import largest_buffer

from trimtab_netmon.settings import Endpoint

#: Parallel streams: one stream's window may not fill a long link, and one alone gets a small share of a busy one.
NUM_STREAMS = 4
#: Seconds between the rates that iperf3 reports.
INTERVAL = 0.1
#: More than a process reads to start (its libraries, configuration, and iperf3's own agreement with the client).
_STARTUP_BYTES = 65536
#: Seconds that a child has to start listening, and to end when told.
PATIENCE = 2.0

#: A child dies with its monitor, however that ends.
_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


class TestError(Exception):
    """A test that could not run, in words for a log."""


def require_iperf3() -> None:
    """Raise `UserError` where iperf3, or the program that ends it with its monitor, is not installed."""
    for program, package in (("iperf3", "iperf3"), (_WITH_PARENT[0], "util-linux")):
        if shutil.which(program) is None:
            raise UserError(
                f"{program} is not installed; install it (Debian: apt-get install {package}) to measure bandwidth"
            )


async def start_server(listen: Endpoint) -> Process:
    """A server for one test, ready when this returns. Raises `TestError`."""
    process = await asyncio.create_subprocess_exec(
        *(*_WITH_PARENT, "iperf3", "--server", "--one-off", "--json", "--interval", str(INTERVAL)),
        *("--bind", listen.host, "--port", str(listen.iperf_port)),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not _is_listening(listen.iperf_port):
                if process.returncode is not None:
                    raise TestError(await _complaint(process))
                await asyncio.sleep(0.005)
    except TimeoutError:
        await stop(process)
        raise TestError(f"iperf3 did not listen on port {listen.iperf_port} within {PATIENCE:g} s") from None
    except asyncio.CancelledError:  # who wanted the test is gone: nobody else knows of the server
        await asyncio.shield(stop(process))
        raise
    return process


async def start_client(target: Endpoint, source: Endpoint, limit: float, window: int | None) -> Process:
    """A client that sends for ``limit`` seconds (rounded up) unless it is stopped before.

    With a ``window``, each stream keeps at most about so many bytes under way.
    """
    return await asyncio.create_subprocess_exec(
        *(*_WITH_PARENT, "iperf3", "--client", target.host, "--port", str(target.iperf_port), "--json"),
        *("--bind", source.host, "--parallel", str(NUM_STREAMS), "--time", str(math.ceil(limit))),
        *("--interval", str(INTERVAL), "--connect-timeout", "2000"),
        *(("--window", str(window)) if window else ()),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )


def largest_window() -> int:
    """Return the largest window that this host's kernel grants a stream in both directions, in bytes."""
    return min(largest_buffer(option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF))


async def stop(process: Process) -> str:
    """End a child: politely, then not; returns what it printed."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)  # terminate() may reap it before asyncio does, which then complains
    try:
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        output, _ = await process.communicate()
    return output.decode(errors="replace")


async def finish(process: Process) -> str:
    """Wait for a child that is about to end by itself; returns what it printed."""
    try:
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate()
    except TimeoutError:
        return await stop(process)
    return output.decode(errors="replace")


def transferred_bytes(process: Process) -> int:
    """Bytes that a running server has read, or a client written; 0 once it has ended.

    The kernel counts them as they happen; iperf3's own report comes when it is over.
    """
    try:
        counts = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
    except OSError:
        return 0
    return max(0, int(counts["rchar"]) - _STARTUP_BYTES)


async def _complaint(process: Process) -> str:
    output, errors = await process.communicate()
    try:
        return f"iperf3: {json.loads(output)['error']}"
    except (ValueError, KeyError):
        return f"iperf3: {(errors or output).decode(errors='replace').strip()[:200]}"


def complaint(report: str) -> str:
    """What a JSON report says went wrong; empty if only that it was stopped."""
    try:
        error = str(json.loads(report).get("error", ""))
    except ValueError:
        return report.strip()[:200]
    return "" if "terminated" in error else error


def _is_listening(port: int) -> bool:
    """Whether a socket of this network namespace listens on a TCP port."""
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        path = Path(table)
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                return True
    return False
