"""The engines that send and receive a test's data (iperf3, or the monitor's own threads), and their choice."""

from __future__ import annotations

import enum
import shutil
from collections.abc import Sequence
from typing import Protocol

#: Bytes per second (10 Gbit/s) above which iperf3 3.12, whose streams share one thread, finds less than a link carries.
MOST_OF_IPERF3 = 1.25e9
#: Parallel streams: one stream's window may not fill a long link, and one alone gets a small share of a busy one.
NUM_STREAMS = 4
#: Seconds that one end has to send its first data once the other one is ready, and to end when told.
PATIENCE = 2.0
#: Seconds that iperf3 has to listen: a process that starts on a starved machine may take longer than a test.
START_PATIENCE = 4.0


class TestError(Exception):
    """A test that could not run, in words for a log."""


class SpoiledError(TestError):
    """An iperf3 that somebody else may have reached, or ended: it cannot be told whom to accept."""


class Engine(enum.Enum):
    """The engines of tests, numbered as in netmon.proto."""

    IPERF3 = 1
    NATIVE = 2


class Receiver(Protocol):
    """The end of a test that receives, and listens for that test alone."""

    port: int
    """The port that the receiver listens on."""
    ticket: bytes
    """The secret that the sender must know; empty if the engine has no such proof."""

    @property
    def is_over(self) -> bool:
        """True once it receives no more."""

    @property
    def num_bytes(self) -> int:
        """Bytes that it has received."""

    @property
    def busiest_thread_seconds(self) -> float:
        """Processor seconds of its busiest thread; 0 if the engine does not count them."""

    def require_good(self) -> None:
        """Raise `TestError` if it failed, or anyone but the sender reached it."""

    async def stop(self) -> None:
        """End it."""


class Sender(Protocol):
    """The end of a test that sends."""

    @property
    def is_over(self) -> bool:
        """True once it sends no more."""

    @property
    def failure(self) -> str:
        """The reason why it ended by itself before its time; empty if it did not."""

    @property
    def busiest_thread_seconds(self) -> float:
        """Processor seconds of its busiest thread; 0 if the engine does not count them."""

    async def stop(self) -> str:
        """End it; return its error messages, which may be those of being ended."""


def has_iperf3() -> bool:
    """Return whether iperf3 is installed here, with the program that ends it together with its monitor."""
    return shutil.which("iperf3") is not None and shutil.which("setpriv") is not None


def engines_for(probe: str, expected: float, has_outrun_iperf3: bool = False) -> list[Engine]:
    """Return the engines that a test may use, the preferred one first.

    Args:
        probe: The job's ``network.probe``: ``auto``, ``iperf3`` or ``native``.
        expected: What the link should carry, in bytes/s; 0 if that is not known.
        has_outrun_iperf3: An earlier test of the link kept a thread of iperf3 busy all the time.
    """
    if probe == "iperf3":
        return [Engine.IPERF3]
    if probe == "native" or expected > MOST_OF_IPERF3 or has_outrun_iperf3 or not has_iperf3():
        return [Engine.NATIVE]
    return [Engine.IPERF3, Engine.NATIVE]


def choose(offered: Sequence[Engine], is_iperf3_spoiled: bool = False) -> Engine:
    """Return the engine that this host receives by: the first one offered that it has.

    If an earlier iperf3 was spoiled, the native engine goes first, if it is offered.

    Raises:
        TestError: If this host has none of them.
    """
    if is_iperf3_spoiled and Engine.NATIVE in offered:
        return Engine.NATIVE
    for engine in offered:
        if engine is Engine.NATIVE or has_iperf3():
            return engine
    raise TestError("iperf3 is not installed here; install it, or set spec.network.probe to auto")
