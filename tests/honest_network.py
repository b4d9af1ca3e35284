"""Checks on an emulated network, which proves something only where the machine let it be as it was asked to be."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from trimtab_netmon.emulate import Emulator, Network, RelayReport

Result = TypeVar("Result")

AGAIN_WITHIN = 300.0
"""Seconds after the first try in which another may begin."""
STANDSTILL = 0.005
"""Seconds that the relay may have stood still at most. A single standstill of this length, far below what makes a run
invalid, empties a full link for long enough that a TCP flow over 25 ms needs seconds to fill it again."""
STOLEN_FRACTION = 0.02
"""Of the processors' time, that which the machine beneath took for itself: the tests' own processes stood still."""


def on_a_network(network: Network, hosts: int, check: Callable[[Emulator], Result]) -> Result:
    """What ``check`` returns of an emulator of ``network``. Where it fails *and* the relay, or the kernel, says that
    the machine was not let run, the failure proves nothing either way: again, on another network. A check that fails
    on a machine that was on time has failed, and so has one that fails until `AGAIN_WITHIN` is over."""
    last_begin = time.monotonic() + AGAIN_WITHIN
    while True:
        with _stolen_time() as stolen, Emulator(network, hosts=hosts, name="test") as emulator:
            try:
                return check(emulator)
            except AssertionError as error:
                relay, share = emulator.lag(), stolen()
                said = f"{error}\n{relay.describe()}; {share:.1%} of the processors' time was stolen"
                if was_on_time(relay, share) or time.monotonic() > last_begin:
                    raise AssertionError(said) from error
                print(f"\nagain: {said}")


def was_on_time(relay: RelayReport, stolen: float) -> bool:
    """Whether the machine let the relay, and what talks across it, run when they wanted to."""
    return relay.valid and relay.heartbeat_lag.max < STANDSTILL and stolen < STOLEN_FRACTION


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
