"""Drift of exchanges from their predictions, and whether it is worth a measurement of the network out of turn.

A measurement disturbs the exchanges it is to explain, so one that found nothing new makes the next one wait longer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import log

#: An exchange disagrees with its prediction when it is off by this factor ...
_FACTOR = log(1.3)
#: ... and by this share of its step, for less would not change the choice.
_MATERIAL_SHARE = 0.1
#: Exchanges drift when this many in a row disagree in one direction, until most of as many agree again.
_NUM_STEPS = 3
#: Seconds between one measurement and the next; doubled each time that the network stayed what it was.
_FIRST_PATIENCE, _MOST_PATIENCE = 4.0, 120.0
#: Seconds after which a refused measurement is asked for again, if exchanges still disagree by then.
_REFUSED_PATIENCE = 2.0


@dataclass(frozen=True)
class _Exchange:
    """One step's, in seconds."""

    took: float
    predicted: float
    step_seconds: float
    """From one exchange to the next: a step, or a round of local ones."""

    def miss(self, confirmed: float | None) -> int:
        """Return 1 if the exchange was slow, -1 if fast, 0 if on time, or hidden, which says nothing."""
        predicted = self.predicted if confirmed is None else confirmed
        is_material = abs(self.took - predicted) > _MATERIAL_SHARE * self.step_seconds
        if self.took <= 0 or predicted <= 0 or not is_material or abs(log(self.took / predicted)) <= _FACTOR:
            return 0
        return 1 if self.took > predicted else -1


class PredictionDrift:
    """Compares the exchanges of the present plan with their predictions.

    Predictions follow what is measured within a few steps, whatever its cause. While exchange times disagree with the
    model and no measurement has explained it, they are therefore compared with the last confirmed prediction.
    """

    def __init__(self) -> None:
        self._recent: deque[_Exchange] = deque(maxlen=_NUM_STEPS)
        self._confirmed: float | None = None
        """The last confirmed prediction [s], while exchanges disagree with it; None while they agree."""
        self._confirmed_when_asked: float | None = None
        self._is_being_measured = False
        self._patience = _FIRST_PATIENCE
        self._silent_until = float("-inf")

    @property
    def is_unexplained(self) -> bool:
        """True if exchanges disagree and nobody knows why: what they teach may be of a network nobody has seen."""
        return self._is_being_measured or self._confirmed is not None

    def observe(self, sync_seconds: float, predicted_seconds: float, step_seconds: float) -> None:
        """Compare one exchange with what was predicted before it was learned from.

        Args:
            sync_seconds: What the exchange took.
            predicted_seconds: What it was predicted to take.
            step_seconds: From this exchange to the next: a step, or a round of local ones.
        """
        self._recent.append(_Exchange(sync_seconds, predicted_seconds, step_seconds))
        if self._confirmed is None and self._is_off():
            self._confirmed = self._recent[0].predicted
        elif [each.miss(self._confirmed) for each in self._recent].count(0) > _NUM_STEPS // 2:
            self._confirmed = None

    def asks_to_measure(self, now: float) -> bool:
        """Return whether to measure now; after True, `measured` or `refused` is to follow."""
        if now < self._silent_until or not self._is_off():
            return False
        self._confirmed_when_asked = self._confirmed
        self._confirmed, self._is_being_measured = None, True
        self._recent.clear()
        self._silent_until = now + self._patience
        self._patience = min(_MOST_PATIENCE, 2 * self._patience)
        return True

    def measured(self) -> None:
        """Take note that the network was measured: exchanges take what they take on this network."""
        self._is_being_measured = False
        self._start_over()

    def refused(self, now: float) -> None:
        """Take note that the network was not measured: ask again, unless exchanges agree by then."""
        self._recent.clear()
        self._confirmed, self._is_being_measured = self._confirmed_when_asked, False
        self._patience = max(_FIRST_PATIENCE, self._patience / 2)
        self._silent_until = now + _REFUSED_PATIENCE

    def plan_changed(self) -> None:
        """Forget what disagreed, since it was under another plan."""
        self._start_over()

    def network_changed(self, now: float) -> None:
        """Forget what disagreed, since the change explains it."""
        self._start_over()
        self._patience = _FIRST_PATIENCE
        self._silent_until = now + self._patience

    def _start_over(self) -> None:
        self._recent.clear()
        self._confirmed = self._confirmed_when_asked = None

    def _is_off(self) -> bool:
        misses = [each.miss(self._confirmed) for each in self._recent]
        return len(misses) == _NUM_STEPS and abs(sum(misses)) == _NUM_STEPS
