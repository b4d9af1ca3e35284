"""Results of bandwidth tests: what each attempt showed, and what it says of the link."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab_netmon.links.measurements import Method
from trimtab_netmon.probing.bandwidth import CONFIRM_AFTER, Rates, is_lower_bound, judge
from trimtab_netmon.probing.engines import Engine

#: A thread that is on a processor for more than this share of the time can move no more data.
BUSY_BEYOND = 0.9

_NATIVE = {Method.IPERF3: Method.NATIVE, Method.IPERF3_SHARED: Method.NATIVE_SHARED}


class BusyThread:
    """The load of the busiest thread of one end while a test's data flowed."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._last = 0.0, 0.0

    def record(self, at: float, seconds: float) -> None:
        """Note the processor seconds that the thread had spent by a moment; what has ended counts none."""
        if seconds > 0:
            self._first = self._first or (at, seconds)
            self._last = at, seconds

    @property
    def was_always_busy(self) -> bool:
        """True if the thread was on a processor for nearly all of a time that is long enough to tell."""
        if self._first is None:
            return False
        elapsed, busy = (last - first for first, last in zip(self._first, self._last, strict=True))
        return elapsed >= CONFIRM_AFTER and busy > BUSY_BEYOND * elapsed


@dataclass(frozen=True)
class Sent:
    """One attempt of a test."""

    rates: Rates
    duration: float
    """Seconds from its first data to its end."""
    num_bytes: int
    engine: Engine
    was_outrun: bool = False
    """A thread of iperf3 was busy all the time: the link may carry more than it can move."""


@dataclass(frozen=True)
class TestResult:
    """The result of one test."""

    bandwidth: float
    """Bytes per second."""
    method: Method
    duration: float
    """Seconds from the test's first data to its end."""
    is_lower_bound: bool
    """The link may carry more."""
    num_bytes: int
    """Bytes that the test sent."""

    @classmethod
    def of(cls, sent: Sent, expected: float) -> TestResult:
        """Judge a test of a link that was ``expected`` to carry so many bytes per second."""
        bandwidth, method = judge(sent.rates, expected)
        if sent.engine is Engine.NATIVE:
            method = _NATIVE[method]
        bound = is_lower_bound(bandwidth, sent.rates, expected)
        return cls(bandwidth, method, sent.duration, bound, sent.num_bytes)

    def after(self, *earlier: Sent) -> TestResult:
        """Return this result with the cost of earlier attempts added."""
        return replace(
            self,
            duration=self.duration + sum(attempt.duration for attempt in earlier),
            num_bytes=self.num_bytes + sum(attempt.num_bytes for attempt in earlier),
        )
