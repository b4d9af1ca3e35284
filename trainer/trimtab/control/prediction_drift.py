"""When exchanges no longer fit the measured network, and whether that is worth a measurement out of turn.

A measurement disturbs the exchanges it is to explain, so one that found nothing new makes the next one wait longer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import log

#: An exchange does not fit when it is off by this factor ...
_FACTOR = log(1.3)
#: ... and by this share of its step, for less would not change the choice ...
_MATERIAL_SHARE = 0.1
#: ... for so many steps in a row, in the same direction. Until then, most of so many must fit for all to be well again.
_STEPS = 3
#: Seconds between a measurement asked for and the next; doubled each time that the network stayed what it was.
_FIRST_PATIENCE, _MOST_PATIENCE = 4.0, 120.0
#: Seconds until one that the monitors refused is asked for again, if it is still wanted by then.
_REFUSED_PATIENCE = 2.0


@dataclass(frozen=True)
class _Exchange:
    """One step's, in seconds."""

    took: float
    expected: float
    step_seconds: float

    def miss(self, held_to: float | None) -> int:
        """1: it was slow, -1: fast, 0: on time, or hidden, which says nothing."""
        expected = self.expected if held_to is None else held_to
        is_material = abs(self.took - expected) > _MATERIAL_SHARE * self.step_seconds
        if self.took <= 0 or expected <= 0 or not is_material or abs(log(self.took / expected)) <= _FACTOR:
            return 0
        return 1 if self.took > expected else -1


class PredictionDrift:
    """Follows how far exchanges are off their predicted times.

    What is predicted soon follows what was measured. From when exchanges are off until somebody has looked why, they
    are therefore held to what was predicted before.
    """

    def __init__(self) -> None:
        self._recent: deque[_Exchange] = deque(maxlen=_STEPS)
        self._asked_about: float | None = None
        self._held_to: float | None = None
        self._is_looked_into = False
        self._patience = _FIRST_PATIENCE
        self._silent_until = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether exchanges are off and nobody knows yet why: what they teach may be of a network nobody has seen."""
        return self._is_looked_into or self._held_to is not None

    def observe(self, sync_seconds: float, expected_seconds: float, step_seconds: float) -> None:
        """One step's exchange, beside what was predicted before it was learned from."""
        self._recent.append(_Exchange(sync_seconds, expected_seconds, step_seconds))
        if self._held_to is None and self._is_off():
            self._held_to = self._recent[0].expected
        elif [each.miss(self._held_to) for each in self._recent].count(0) > _STEPS // 2:
            self._held_to = None

    def asks(self, now: float) -> bool:
        """Whether to measure now; a yes counts as asked, and `answered` or `refused` is to follow."""
        if now < self._silent_until or not self._is_off():
            return False
        self._asked_about = self._held_to
        self._held_to, self._is_looked_into = None, True
        self._recent.clear()
        self._silent_until = now + self._patience
        self._patience = min(_MOST_PATIENCE, 2 * self._patience)
        return True

    def answered(self) -> None:
        """The measurement asked for has taken place: exchanges take what they take on this network."""
        self._is_looked_into = False
        self.forget()

    def refused(self, now: float) -> None:
        """The measurement asked for did not take place: ask again, unless exchanges are back on time by then."""
        self._recent.clear()
        self._held_to, self._is_looked_into = self._asked_about, False
        self._patience = max(_FIRST_PATIENCE, self._patience / 2)
        self._silent_until = now + _REFUSED_PATIENCE

    def forget(self) -> None:
        """What was off says nothing any more: it was under another plan, or has been looked into."""
        self._recent.clear()
        self._held_to = self._asked_about = None

    def settle(self, now: float) -> None:
        """The network changed, or was seen to have: what was off is explained."""
        self.forget()
        self._patience = _FIRST_PATIENCE
        self._silent_until = now + self._patience

    def _is_off(self) -> bool:
        misses = [each.miss(self._held_to) for each in self._recent]
        return len(misses) == _STEPS and abs(sum(misses)) == _STEPS
