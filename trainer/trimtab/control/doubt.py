"""When exchanges no longer fit the measured network, and whether that is worth a measurement out of turn.

A measurement disturbs the exchanges it is to explain, so one that found nothing new makes the next one wait longer.
"""

from __future__ import annotations

from collections import deque
from math import log

#: An exchange does not fit when it is off by this factor ...
_FACTOR = log(1.3)
#: ... and by this share of its step, for less would not change the choice ...
_MATERIAL_SHARE = 0.1
#: ... for so many steps in a row, in the same direction.
_STEPS = 3
#: Seconds between a measurement asked for and the next; doubled each time that the network stayed what it was.
_FIRST_PATIENCE, _MOST_PATIENCE = 4.0, 120.0
#: Seconds until one that the monitors refused is asked for again, if it is still wanted by then.
_REFUSED_PATIENCE = 2.0


class Doubt:
    """Follows how far exchanges are off their predicted times."""

    def __init__(self) -> None:
        self._missed: deque[tuple[float, float]] = deque(maxlen=_STEPS)  # how far off (log), and off what
        self._asked_about: float | None = None
        self._held_to: float | None = None
        self._patience = _FIRST_PATIENCE
        self._silent_until = float("-inf")

    def observe(self, sync_seconds: float, expected_seconds: float, step_seconds: float) -> None:
        """One step's exchange, beside what was predicted before it was learned from."""
        expected = expected_seconds if self._held_to is None else self._held_to
        is_material = abs(sync_seconds - expected) > _MATERIAL_SHARE * step_seconds
        if sync_seconds <= 0 or expected <= 0 or not is_material:
            self.forget()
            return
        self._missed.append((log(sync_seconds / expected), expected))

    def asks(self, now: float) -> bool:
        """Whether to measure now; a yes counts as asked."""
        if len(self._missed) < _STEPS or now < self._silent_until:
            return False
        misses = [miss for miss, _ in self._missed]
        if min(misses) <= _FACTOR and max(misses) >= -_FACTOR:
            return False
        asked_about = self._missed[0][1]
        self.forget()
        self._asked_about = asked_about
        self._silent_until = now + self._patience
        self._patience = min(_MOST_PATIENCE, 2 * self._patience)
        return True

    def refused(self, now: float) -> None:
        """The measurement asked for did not take place: ask again, unless exchanges are back on time by then.

        By then they would fit what the predictor has learned of them, so they are held to what was expected before.
        """
        self._missed.clear()
        self._held_to = self._asked_about
        self._patience = max(_FIRST_PATIENCE, self._patience / 2)
        self._silent_until = now + _REFUSED_PATIENCE

    def forget(self) -> None:
        """What was off is off no more, or was of another plan."""
        self._missed.clear()
        self._held_to = self._asked_about = None

    def settle(self, now: float) -> None:
        """The network changed, or was seen to have: what was off is explained."""
        self.forget()
        self._patience = _FIRST_PATIENCE
        self._silent_until = now + self._patience
