"""How long trials may take, by how long they and solving have taken."""

from __future__ import annotations

#: What trials take beyond their prediction, until some have told: the first of a path, and all ranks' waiting.
_FIRST_OVERRUN = 1.25
#: The longest overrun that is believed: beyond it, the processors were away.
_LONGEST_OVERRUN = 3.0


class TrialBudget:
    """Keeps trials and solving under a share of the time since training began, trials also of that since the last."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._started: float | None = None
        self._explored_until = 0.0
        self._seconds = 0.0
        self._longest_solving = 0.0
        self._overrun = _FIRST_OVERRUN
        self._asked_for: float | None = None
        """What the trials that are on their way are predicted to take; None while there are none."""

    @property
    def has_begun(self) -> bool:
        """Whether training has."""
        return self._started is not None

    def begin(self, now: float) -> None:
        """Training begins; again, it changes nothing."""
        if self._started is None:
            self._started = self._explored_until = now

    def solved(self, seconds: float) -> None:
        """A decision took so long, beside training or not."""
        self._seconds += seconds
        self._longest_solving = max(self._longest_solving, seconds)

    def ask(self, predicted_seconds: float) -> None:
        """Trials were asked for: none more until they are over, since what they take is not booked yet."""
        self._asked_for = predicted_seconds

    def ended(self, seconds: float, now: float) -> None:
        """Trials, or a refusal to run any, are over after so many seconds."""
        if self._asked_for and seconds:
            self._overrun = min(_LONGEST_OVERRUN, max(1.0, seconds / self._asked_for))
        self._asked_for = None
        self._seconds += seconds
        self._explored_until = now

    def budget(self, now: float) -> float:
        """Seconds that trials may be predicted to take now; none, or less, where their share is spent already.

        Less than is left of the share, by as much as the last ones took beyond their prediction, and by the decision
        that follows them.
        """
        if self._started is None or self._asked_for is not None:
            return 0.0
        left = self._share * (now - self._started) - self._seconds - self._longest_solving
        return min(self._share * (now - self._explored_until), left) / self._overrun
