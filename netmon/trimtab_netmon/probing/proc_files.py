"""Processes and sockets of this host as the kernel's files in /proc show them."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

#: More than a process reads to start (its libraries, configuration, and iperf3's own agreement with the client).
_STARTUP_BYTES = 65536
#: States of a socket, as the kernel writes them.
_ESTABLISHED, _LISTENING = "01", "0A"


def transferred_bytes(pid: int) -> int:
    """Return the bytes that a running server has read, or a client written; 0 once it has ended.

    The kernel counts them as they happen; iperf3's own report comes when it is over.
    """
    try:
        counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    except OSError:
        return 0
    return max(0, int(counts["rchar"]) - _STARTUP_BYTES)


def busiest_thread_seconds(pid: int) -> float:
    """Return the processor seconds of the busiest thread of a running process; 0 once it has ended.

    Before version 3.16 one thread of iperf3 moves all data; since then each stream has one of its own.
    """
    ticks = [0]
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            fields = (thread / "stat").read_text().rpartition(")")[2].split()
            ticks.append(int(fields[11]) + int(fields[12]))  # in user mode, and in the kernel
    return max(ticks) / os.sysconf("SC_CLK_TCK")


def is_listening(port: int) -> bool:
    """Return whether a socket of this network namespace listens on a TCP port."""
    return any(state == _LISTENING for _, state in _sockets_at(port))


def connected_to(port: int) -> set[str]:
    """Return the IPv4 addresses that are connected to a TCP port of this network namespace."""
    return {address for address, state in _sockets_at(port) if state == _ESTABLISHED}


def _sockets_at(port: int) -> Iterator[tuple[str, str]]:
    """Yield the other end's address and the state of each socket at a local port."""
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        path = Path(table)
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            if int(local.rsplit(":", 1)[1], 16) == port:
                yield _address(remote.rsplit(":", 1)[0]), state


def _address(words: str) -> str:
    """Convert an address as /proc writes it: hexadecimal words of the machine's byte order.

    The last word is an IPv4 address.
    """
    return socket.inet_ntoa(int(words[-8:], 16).to_bytes(4, sys.byteorder))
