"""Makes faults happen to a job, and ends those that end: processes, networks, volumes and clocks."""

from __future__ import annotations

import contextlib
import resource
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
from soak.fault_plan import NUM_RANKS, Fault, Kind
from soak.soaked_job import SoakedJob
from trimtab_api.names import EMULATED_SUBNET

#: Seconds that a whole run has to end and to leave nothing behind.
END_SECONDS = 60.0
#: Seconds of a clock's step.
CLOCK_STEP_SECONDS = 3600
_AHEAD = struct.Struct("=q")
_CLOCK_SOURCE = Path(__file__).with_name("stepped_clock.c")
_DEVICE = "tt0"
#: A hundredth of the emulated 1 Gbit/s.
_SLOW = "10mbit"


class LeftBehindError(Exception):
    """A run that ended has left something behind."""


def clock_environment(folder: Path) -> dict[str, str]:
    """Return the variables by which all processes of a job take the time of day from a file in ``folder``."""
    library, clock = folder / "stepped_clock.so", folder / "clock"
    _run("cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(_CLOCK_SOURCE))
    clock.write_bytes(_AHEAD.pack(0))
    return {"LD_PRELOAD": str(library), "SOAK_CLOCK": str(clock)}


@contextmanager
def volume(path: Path) -> Iterator[None]:
    """Have a small file system of its own at ``path``."""
    _run("mount", "-t", "tmpfs", "-o", "size=16m", "soak", str(path))
    try:
        yield
    finally:
        _run("umount", "--lazy", str(path))


def applied(fault: Fault, job: SoakedJob) -> AbstractContextManager[None]:
    """Return the context in which a fault is there.

    Raises:
        LeftBehindError: The run was ended, and left something behind.
    """
    return _MAKERS[fault.kind](fault, job)


def namespaces_of(launcher: int) -> list[str]:
    """Return the network namespaces that a launcher has made and that are still there."""
    folder = Path("/run/netns")
    return [path.name for path in folder.glob(f"trimtab-*-{launcher}-*")] if folder.is_dir() else []


def wait_for_end(job: SoakedJob) -> None:
    """Wait until nothing of a run whose launcher has ended is left; raise `LeftBehindError` where something stays."""
    deadline = time.monotonic() + END_SECONDS
    job.launcher.wait(END_SECONDS)
    while (left := job.processes()) or namespaces_of(job.launcher.pid):
        if time.monotonic() > deadline:
            names = [" ".join(process.cmdline())[:80] for process in left]
            raise LeftBehindError(f"left behind: {names}, {namespaces_of(job.launcher.pid)}")
        time.sleep(0.1)


# Processes --------------------------------------------------------------------------------------------------------


@contextmanager
def _signalled(fault: Fault, job: SoakedJob) -> Iterator[None]:
    process = job.monitor(fault.target) if fault.kind is Kind.KILL_MONITOR else job.rank(fault.target)
    process.send_signal(signal.SIGTERM if fault.kind is Kind.TERMINATE_RANK else signal.SIGKILL)
    yield


@contextmanager
def _stopped(fault: Fault, job: SoakedJob) -> Iterator[None]:
    process = job.monitor(fault.target) if fault.kind is Kind.STOP_MONITOR else job.rank(fault.target)
    process.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


@contextmanager
def _without_memory(fault: Fault, job: SoakedJob) -> Iterator[None]:
    process = job.rank(fault.target)
    before = process.rlimit(resource.RLIMIT_AS)
    process.rlimit(resource.RLIMIT_AS, (process.memory_info().vms, before[1]))
    yield
    with contextlib.suppress(psutil.NoSuchProcess):
        process.rlimit(resource.RLIMIT_AS, before)


@contextmanager
def _run_ended(fault: Fault, job: SoakedJob) -> Iterator[None]:
    job.launcher.send_signal(signal.SIGTERM if fault.kind is Kind.TERMINATE_RUN else signal.SIGKILL)
    wait_for_end(job)
    job.start()
    yield


# Networks ---------------------------------------------------------------------------------------------------------


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")


def _inside(process: psutil.Process, *argv: str) -> list[str]:
    return ["nsenter", "--target", str(process.pid), "--net", "--", *argv]


@contextmanager
def _rules(job: SoakedJob, rules: dict[int, list[list[str]]]) -> Iterator[None]:
    """Add filter rules to hosts, and remove them; a host whose processes were started again has none of them."""
    hosts = {host: job.rank(host) for host in rules}
    for host, added in rules.items():
        for rule in added:
            _run(*_inside(hosts[host], "iptables", "-w", "-A", "INPUT", "-i", _DEVICE, *rule))
    try:
        yield
    finally:
        for process in hosts.values():
            with contextlib.suppress(OSError):
                _run(*_inside(process, "iptables", "-w", "-F", "INPUT"))


def _drop_from(host: int) -> list[str]:
    return ["-s", str(EMULATED_SUBNET[host + 1]), "-j", "DROP"]


def _link_cut(fault: Fault, job: SoakedJob) -> AbstractContextManager[None]:
    return _rules(job, {fault.target: [_drop_from(fault.other)], fault.other: [_drop_from(fault.target)]})


def _parted(fault: Fault, job: SoakedJob) -> AbstractContextManager[None]:
    here = {fault.target, fault.other}
    there = set(range(NUM_RANKS)) - here
    return _rules(job, {host: [_drop_from(far) for far in (there if host in here else here)] for host in here | there})


def _lossy(fault: Fault, job: SoakedJob) -> AbstractContextManager[None]:
    some = ["-m", "statistic", "--mode", "random", "--probability", "0.05", "-j", "DROP"]
    return _rules(job, {fault.target: [some]})


@contextmanager
def _flapping(fault: Fault, job: SoakedJob) -> Iterator[None]:
    process = job.rank(fault.target)
    rule = f"INPUT -i {_DEVICE} -j DROP"
    loop = f"while iptables -w -A {rule}; do sleep 0.3; iptables -w -D {rule}; sleep 0.3; done"
    with subprocess.Popen(_inside(process, "sh", "-c", loop), stderr=subprocess.DEVNULL, process_group=0) as flaps:
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                psutil.Process(flaps.pid).kill()
    with contextlib.suppress(OSError):
        _run(*_inside(process, "iptables", "-w", "-F", "INPUT"))


@contextmanager
def _slow(fault: Fault, job: SoakedJob) -> Iterator[None]:
    process = job.rank(fault.target)
    slow = ("rate", _SLOW, "burst", "130000", "latency", "500ms")
    _run(*_inside(process, "tc", "qdisc", "replace", "dev", _DEVICE, "root", "tbf", *slow))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _run(*_inside(process, "tc", "qdisc", "del", "dev", _DEVICE, "root"))


# Volumes and clocks -----------------------------------------------------------------------------------------------


@contextmanager
def _full(fault: Fault, job: SoakedJob) -> Iterator[None]:
    ballast = job.checkpoints / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4096))
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def _unwritable(fault: Fault, job: SoakedJob) -> Iterator[None]:
    _remount(job.checkpoints, "ro")
    try:
        yield
    finally:
        _remount(job.checkpoints, "rw")


def _remount(path: Path, mode: str) -> None:
    """Remount a volume; it is busy while a file there is open for writing."""
    deadline = time.monotonic() + 10.0
    while True:
        try:
            _run("mount", "-o", f"remount,{mode}", str(path))
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def _slow_volume(fault: Fault, job: SoakedJob) -> Iterator[None]:
    told = job.folder / "slow-volume"
    told.write_text("1.5")
    try:
        yield
    finally:
        told.unlink()


@contextmanager
def _clock_stepped(fault: Fault, job: SoakedJob) -> Iterator[None]:
    step = CLOCK_STEP_SECONDS if fault.target % 2 else -CLOCK_STEP_SECONDS
    with (job.folder / "clock").open("r+b") as clock:
        (ahead,) = _AHEAD.unpack(clock.read())
        clock.seek(0)
        clock.write(_AHEAD.pack(ahead + step))
    yield


_MAKERS: dict[Kind, Callable[[Fault, SoakedJob], AbstractContextManager[None]]] = {
    Kind.KILL_RANK: _signalled,
    Kind.TERMINATE_RANK: _signalled,
    Kind.KILL_MONITOR: _signalled,
    Kind.MEMORY_LIMIT: _without_memory,
    Kind.STOP_RANK: _stopped,
    Kind.STOP_RANK_LONG: _stopped,
    Kind.STOP_MONITOR: _stopped,
    Kind.CUT_LINK: _link_cut,
    Kind.FLAP: _flapping,
    Kind.LOSS: _lossy,
    Kind.SLOW_LINK: _slow,
    Kind.PARTITION: _parted,
    Kind.PARTITION_LONG: _parted,
    Kind.FULL_DISK: _full,
    Kind.UNWRITABLE: _unwritable,
    Kind.SLOW_VOLUME: _slow_volume,
    Kind.CLOCK_STEP: _clock_stepped,
    Kind.TERMINATE_RUN: _run_ended,
    Kind.KILL_RUN: _run_ended,
}
