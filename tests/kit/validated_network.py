"""Checks on an emulated network, which proves something only where the machine let it be as it was asked to be."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from trimtab_netmon.emulate import Emulator, Network, RelayReport

Result = TypeVar("Result")

PATIENCE = 1500.0
"""Seconds that all checks of a run of the tests together may spend on trying again and on waiting for the machine. What
takes the processors away stays for minutes: a bound for each check alone would be too short for that, and too long for
all together."""
STANDSTILL = 0.005
"""Seconds that the relay may have stood still at most. A single standstill of this length, far below what makes a run
invalid, empties a full link for long enough that a TCP flow over 25 ms needs seconds to fill it again."""
STOLEN_FRACTION = 0.02
"""Of the processors' time, that which the machine beneath took for itself: the tests' own processes stood still."""
REST = 10.0
"""Seconds between two looks at whether the machine lends its processors again."""

_spent = 0.0


def on_a_network(network: Network, hosts: int, check: Callable[[Emulator], Result]) -> Result:
    """What ``check`` returns of an emulator of ``network``. Where it fails *and* the relay, or the kernel, says that
    the machine was not let run, the failure proves nothing either way: again, on another network, once the processors
    are there. A check that fails on a machine that was on time has failed, and so has one that fails when `PATIENCE` is
    at its end."""
    global _spent
    failed_at: float | None = None
    try:
        while True:
            with _stolen_time() as stolen, Emulator(network, hosts=hosts, name="test") as emulator:
                try:
                    return check(emulator)
                except AssertionError as error:
                    relay, share = emulator.lag(), stolen()
                    said = f"{error}\n{relay.describe()}; {share:.1%} of the processors' time was stolen"
                    failed_at = failed_at or time.monotonic()
                    last_begin = failed_at + PATIENCE - _spent
                    if was_on_time(relay, share) or time.monotonic() >= last_begin:
                        raise AssertionError(said) from error
                    print(f"\nagain: {said}")
            wait_for_the_processors(last_begin)
    finally:
        _spent += 0.0 if failed_at is None else time.monotonic() - failed_at


def was_on_time(relay: RelayReport, stolen: float) -> bool:
    """Whether the machine let the relay, and what talks across it, run when they wanted to."""
    return relay.valid and relay.heartbeat_lag.max < STANDSTILL and stolen < STOLEN_FRACTION


def wait_for_the_processors(deadline: float) -> None:
    """Rest until all processors together are busy for a second without being taken away, or until ``deadline``."""
    while stolen_while_busy() >= STOLEN_FRACTION and time.monotonic() + REST < deadline:
        time.sleep(REST)


def stolen_while_busy(seconds: float = 1.0) -> float:
    """The part of all processors' time that is stolen while they have something to do."""
    end, nothing = time.monotonic() + seconds, bytes(1 << 20)

    def be_busy() -> None:
        while time.monotonic() < end:
            hashlib.sha256(nothing)  # lets other threads run meanwhile

    with _stolen_time() as stolen, ThreadPoolExecutor() as threads:
        for done in [threads.submit(be_busy) for _ in range(os.cpu_count() or 1)]:
            done.result()
        return stolen()


@contextmanager
def _stolen_time() -> Iterator[Callable[[], float]]:
    """The part of all processors' time that was stolen since the context began."""
    before, since = _stolen_seconds(), time.monotonic()

    def share() -> float:
        return (_stolen_seconds() - before) / (time.monotonic() - since) / (os.cpu_count() or 1)

    yield share


def _stolen_seconds() -> float:
    user_nice_system_and_so_on = Path("/proc/stat").read_text().split()[1:]
    return int(user_nice_system_and_so_on[7]) / os.sysconf("SC_CLK_TCK")
