"""The byte counters of one network device, and whether it was busy."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from trimtab_api.errors import UserError

#: Seconds between two readings.
SAMPLE_INTERVAL = 0.025
#: Seconds of readings that are kept.
HISTORY = 2.0
#: An interface that moves more than this share of what its links carry is busy.
BUSY_SHARE = 0.2

#: Of this process's own network namespace; /sys/class/net may be another's.
_COUNTERS = Path("/proc/self/net/dev")


@dataclass(frozen=True)
class Reading:
    """The counters at one moment."""

    at: float
    """Monotonic seconds."""
    received: int
    """Bytes since the device came up."""
    sent: int
    """Bytes since the device came up."""


def read_counters(interface: str) -> Reading:
    """The counters now. Raises `UserError` where there is no such device."""
    before = time.monotonic()
    text = _COUNTERS.read_text()
    at = (before + time.monotonic()) / 2
    for line in text.splitlines():
        name, colon, counts = line.partition(":")
        if colon and name.strip() == interface:
            fields = counts.split()
            return Reading(at, int(fields[0]), int(fields[8]))
    raise UserError("no such network device here; see `ip link`", field="--interface", value=interface)


class InterfaceWatch:
    """Recent readings of one device, taken while `run` runs."""

    def __init__(self, interface: str) -> None:
        self.interface = interface
        self._readings: deque[Reading] = deque([read_counters(interface)])
        self.capacity = 0.0
        """Bytes per second that count as full; 0: not known, and nothing counts as busy."""

    def read(self) -> Reading:
        """A reading now, kept with the others."""
        reading = read_counters(self.interface)
        self._readings.append(reading)
        while self._readings[0].at < reading.at - HISTORY:
            self._readings.popleft()
        return reading

    async def run(self) -> None:
        """Keep reading."""
        while True:
            self.read()
            await asyncio.sleep(SAMPLE_INTERVAL)

    def was_busy(self, since: float) -> bool:
        """Whether the device was busy in any interval between readings that reaches past ``since`` (monotonic)."""
        if self.capacity == 0:
            return False
        most = BUSY_SHARE * self.capacity
        after = self.read()
        for before in list(reversed(self._readings))[1:]:
            if after.at <= since:
                return False
            elapsed = max(after.at - before.at, 1e-3)
            if max(after.received - before.received, after.sent - before.sent) > most * elapsed:
                return True
            after = before
        return False

    def sending_rate(self, window: float) -> float:
        """Bytes per second sent over the last ``window`` seconds; 0 before there is that much to look back on."""
        self.read()
        _, sent = _rates(list(self._readings), window)
        return sent

    def most_received(self, window: float) -> float:
        """Bytes per second that arrived in the best ``window`` seconds of those that are kept; 0 if they are fewer."""
        readings = list(self._readings)
        return max(_rates(readings[: end + 1], window)[0] for end in range(len(readings)))


def _rates(readings: list[Reading], window: float) -> tuple[float, float]:
    """Bytes per second received and sent over the last ``window`` seconds; zeros where the readings are of less."""
    now = readings[-1]
    for before in reversed(readings):
        if (elapsed := now.at - before.at) >= window:
            return (now.received - before.received) / elapsed, (now.sent - before.sent) / elapsed
    return 0.0, 0.0
