"""Network namespaces that never outlive their owner.

A namespace's name carries the process that made it: ``trimtab-NAME-PID-SERIAL-HOST``. Whoever finds one whose process
is gone may remove it, with everything that still runs inside: the relay does when its owner is killed (it becomes
`SWEEP`), and so does every emulator that starts.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

#: Directory of iproute2's named namespaces.
NAMESPACES = Path("/run/netns")

COMMAND_TIMEOUT = 20.0
#: Seconds that killed processes have to leave a namespace.
KILL_TIMEOUT = 5.0

#: The command that sweeps.
SWEEP = (sys.executable, "-c", f"from {__name__} import sweep; sweep()")

_NAME = re.compile(r"trimtab-.+-(\d+)-\d+-\d+")
_serials = itertools.count()


class NamespaceError(RuntimeError):
    """The kernel or a command of iproute2 refused; the message says what and why."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.words = " ".join(why.split())
        """The reason, on one line."""


def new_names(name: str, count: int) -> list[str]:
    """Return names for ``count`` namespaces of this process, never used before."""
    serial = next(_serials)
    return [f"trimtab-{name}-{os.getpid()}-{serial}-{host}" for host in range(count)]


def path_of(namespace: str) -> Path:
    """Return the file that stands for a namespace."""
    return NAMESPACES / namespace


def inside(namespace: str, argv: list[str]) -> list[str]:
    """Return the command that runs ``argv`` inside a namespace, in the same process."""
    return ["nsenter", f"--net={path_of(namespace)}", "--", *argv]


def run(argv: list[str], stdin: str = "") -> None:
    """Run a command to its end, in a session of its own.

    Ctrl-C at the terminal is for the owner alone, who may be removing what there is.

    Raises:
        NamespaceError: If the command fails; the message holds its last words.
    """
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NamespaceError(" ".join(argv), str(error)) from error
    if done.returncode != 0:
        raise NamespaceError(" ".join(argv), done.stderr.strip() or f"exit code {done.returncode}")


def add(namespace: str) -> None:
    """Make a namespace."""
    run(["ip", "netns", "add", namespace])


def remove(namespace: str) -> None:
    """Kill what runs inside a namespace and remove it; nothing to do when there is none."""
    path = path_of(namespace)
    if not path.exists():
        return
    _kill_inside(path)
    try:
        run(["ip", "netns", "delete", namespace])
    except NamespaceError:
        if path.exists():  # else another sweep was faster
            raise


def sweep() -> list[str]:
    """Remove the namespaces whose owners are gone; return their names."""
    names = sorted(path.name for path in NAMESPACES.iterdir()) if NAMESPACES.is_dir() else []
    stale = [name for name in names if (match := _NAME.fullmatch(name)) and not _is_alive(int(match[1]))]
    for name in stale:
        remove(name)
    return stale


def _is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # any bytes may name a process
    except OSError:
        return False
    # The state follows the command, which stands in parentheses and may hold any character.
    return status.rpartition(")")[2].split()[0] not in "ZX"


def _kill_inside(path: Path) -> None:
    deadline = time.monotonic() + KILL_TIMEOUT
    while processes := _processes_inside(path):
        if time.monotonic() > deadline:
            raise NamespaceError(f"the namespace {path.name}", f"its processes {processes} cannot be killed")
        for pid in processes:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def _processes_inside(path: Path) -> list[int]:
    try:
        namespace = path.stat()
    except OSError:
        return []
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            its = (process / "ns" / "net").stat()
        except OSError:  # gone meanwhile
            continue
        if (its.st_dev, its.st_ino) == (namespace.st_dev, namespace.st_ino):
            found.append(int(process.name))
    return found
