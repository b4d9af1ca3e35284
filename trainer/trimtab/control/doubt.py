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


class Doubt:
    """Follows how far exchanges are off their predicted times."""

    def __init__(self) -> None:
        self._missed: deque[float] = deque(maxlen=_STEPS)
        self._patience = _FIRST_PATIENCE
        self._silent_until = float("-inf")

    def observe(self, sync_seconds: float, expected_seconds: float, step_seconds: float) -> None:
        """One step's exchange, beside what was predicted before it was learned from."""
        is_material = abs(sync_seconds - expected_seconds) > _MATERIAL_SHARE * step_seconds
        if sync_seconds <= 0 or expected_seconds <= 0 or not is_material:
            self._missed.clear()
            return
        self._missed.append(log(sync_seconds / expected_seconds))

    def asks(self, now: float) -> bool:
        """Whether to measure now; a yes counts as asked."""
        if len(self._missed) < _STEPS or now < self._silent_until:
            return False
        if min(self._missed) <= _FACTOR and max(self._missed) >= -_FACTOR:
            return False
        self._missed.clear()
        self._silent_until = now + self._patience
        self._patience = min(_MOST_PATIENCE, 2 * self._patience)
        return True

    def settle(self, now: float) -> None:
        """The network changed, or was seen to have: what was off is explained."""
        self._missed.clear()
        self._patience = _FIRST_PATIENCE
        self._silent_until = now + self._patience
