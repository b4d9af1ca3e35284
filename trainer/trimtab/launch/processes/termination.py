"""Ends processes: how they are told to, and how long they may take.

The processes of a group are asked in an order that lets the one in charge save first.
A rank that saves on SIGTERM still needs its data loaders' workers, and the `tee` that reads what it prints.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import psutil


def end_politely(leader: int) -> list[psutil.Process]:
    """Send SIGTERM to the processes in charge of a group.

    In charge are those that handle SIGTERM and stand below no other that does, and the processes above them (a shell).
    Where no process handles it, the whole group gets it.

    Args:
        leader: The process that leads the group, not yet waited for.

    Returns:
        The processes to wait for before the rest of the group is killed.
    """
    try:
        in_charge = _in_charge(psutil.Process(leader), leader)
    except psutil.NoSuchProcess:
        return []
    if not in_charge:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGTERM)
    for process in in_charge:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGTERM)
    return in_charge


def has_gone(process: psutil.Process) -> bool:
    """Return whether the process has ended, waited for or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def _in_charge(process: psutil.Process, group: int) -> list[psutil.Process]:
    """Return the processes in charge among this one and those below it; empty where none handles SIGTERM."""
    if _handles_sigterm(process.pid):
        return [process]
    found: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        for child in process.children():
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(child.pid) == group:
                    found += _in_charge(child, group)
    return [process, *found] if found else []


def _handles_sigterm(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")  # any bytes may name a process
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
