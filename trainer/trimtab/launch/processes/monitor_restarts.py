"""Restarts of monitors that ended: training goes on without them. Pure: times go in, names come out."""

from __future__ import annotations

from trimtab_api.throttling import Backoff

from trimtab.launch.processes.children import Exit

#: Seconds until a monitor that ended is started again; twice as long after each further end.
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
_BACKOFF = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
#: A monitor that ran for so many seconds is started again after `FIRST_PAUSE`.
STEADY_SECONDS = 60.0
#: Exit code of a monitor for a mistake of the user's, which it has said in one line.
MISTAKE = 2


class MonitorRestarts:
    """The monitors that ended and are to be started again. Times are seconds by any one clock."""

    def __init__(self) -> None:
        self._in_a_row: dict[str, int] = {}
        """Ends of each monitor since it last ran for long."""
        self._started: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def started(self, name: str, now: float) -> None:
        """Note that a monitor was started."""
        self._started[name] = now

    def ended(self, ended: Exit, now: float) -> str:
        """Plan the restart of a monitor that ended; returns a sentence about it."""
        if now - self._started[ended.name] >= STEADY_SECONDS:
            self._in_a_row.pop(ended.name, None)
        num_before = self._in_a_row.get(ended.name, 0)
        self._in_a_row[ended.name] = num_before + 1
        pause = _BACKOFF.delay(num_before)
        self._due[ended.name] = now + pause
        return f"trimtab: the monitor ended with {ended.how}; it is started again in {pause:g} s"

    def take_due(self, now: float) -> list[str]:
        """Return the monitors to start now; each is returned once."""
        due = [name for name, at in self._due.items() if at <= now]
        for name in due:
            del self._due[name]
        return due
