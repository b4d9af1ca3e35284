"""How long trials may take, by how long they have taken."""

from __future__ import annotations


class Exploration:
    """Keeps trials under a share of the time since the last ones, and of all the time since training began."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._started: float | None = None
        self._explored_until = 0.0
        self._seconds = 0.0
        self._is_asked_for = False

    @property
    def has_begun(self) -> bool:
        """Whether training has."""
        return self._started is not None

    def begin(self, now: float) -> None:
        """Training begins; again, it changes nothing."""
        if self._started is None:
            self._started = self._explored_until = now

    def ask(self) -> None:
        """Trials were asked for: none more until they are over, since what they take is not booked yet."""
        self._is_asked_for = True

    def ended(self, seconds: float, now: float) -> None:
        """Trials, or a refusal to run any, are over after so many seconds."""
        self._is_asked_for = False
        self._seconds += seconds
        self._explored_until = now

    def budget(self, now: float) -> float:
        """Seconds that trials may take now; none, or less, where they took their share already."""
        if self._started is None or self._is_asked_for:
            return 0.0
        return min(
            self._share * (now - self._explored_until),
            self._share * (now - self._started) - self._seconds,
        )
