"""Which processes belong to a run: those that name its directory, or that such a process started."""

import time
from collections.abc import Callable
from pathlib import Path

import psutil


def of_run(directory: Path) -> list[psutil.Process]:
    """Processes of the run in this directory: by their environment, which children inherit."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TRIMTAB_RUN_DIR") == str(directory) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def monitors_of(launcher: psutil.Process) -> list[psutil.Process]:
    """The monitors that a launcher started."""
    return [child for child in launcher.children() if "trimtab_netmon.main" in child.cmdline()]


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended (a zombie, which its parent has yet to collect, has)."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Return when the condition holds; fail when it does not within the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def offspring_until(
    condition: Callable[[], bool], launcher: psutil.Process, seconds: float = 30.0
) -> set[psutil.Process]:
    """Every process that was seen beneath the launcher until the condition held."""
    seen: set[psutil.Process] = set()

    def holds() -> bool:
        seen.update(launcher.children(recursive=True))
        return condition()

    wait_until(holds, seconds)
    return seen
