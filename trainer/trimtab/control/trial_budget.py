"""The seconds that trials and decisions may take, by how many they have taken so far."""

from __future__ import annotations

#: Trials take this many times their prediction, until some have shown by how much they overrun it: the first message
#: of each connection and the ranks' waiting for each other are not predicted.
_FIRST_OVERRUN = 1.25
#: A larger overrun is not believed: other work had the processors.
_LARGEST_OVERRUN = 3.0
#: Of the time since training began: more is not spent on decisions that can wait, for they take a processor's time.
_DECIDING_SHARE = 0.05


class TrialBudget:
    """Keeps trials and decisions under a share of the time since training began, trials also of that since the last."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._began: float | None = None
        self._last_trials_ended = 0.0
        self._spent_seconds = 0.0
        self._deciding_seconds = 0.0
        self._longest_decision = 0.0
        self._overrun = _FIRST_OVERRUN
        self._reserved: float | None = None
        """Predicted seconds of the trials that are under way; None while there are none."""

    @property
    def has_begun(self) -> bool:
        """True if training has begun."""
        return self._began is not None

    def begin(self, now: float) -> None:
        """Take the time at which training begins. Further calls change nothing."""
        if self._began is None:
            self._began = self._last_trials_ended = now

    def decided(self, seconds: float) -> None:
        """Count the seconds of a processor that a decision took."""
        self._spent_seconds += seconds
        self._deciding_seconds += seconds
        self._longest_decision = max(self._longest_decision, seconds)

    def reserve(self, predicted_seconds: float) -> None:
        """Reserve the time of trials that were asked for: until they have ended, no others may run."""
        self._reserved = predicted_seconds

    def ended(self, seconds: float, now: float) -> None:
        """Count the seconds after which trials have ended; 0: they were refused."""
        if self._reserved and seconds:
            self._overrun = min(_LARGEST_OVERRUN, max(1.0, seconds / self._reserved))
        self._reserved = None
        self._spent_seconds += seconds
        self._last_trials_ended = now

    def may_decide(self, now: float) -> bool:
        """Return whether decisions have taken so little that one which can wait, need not."""
        return self._began is not None and self._deciding_seconds <= _DECIDING_SHARE * (now - self._began)

    def available(self, now: float) -> float:
        """Return the seconds that trials may be predicted to take now; 0 or less if their share is spent.

        Two shares bound it: that of the time since training began, less what trials and decisions have spent and the
        decision after these trials will; and that of the time since the last trials. Both are divided by the overrun
        that is to be expected.
        """
        if self._began is None or self._reserved is not None:
            return 0.0
        unspent = self._share * (now - self._began) - self._spent_seconds - self._longest_decision
        return min(self._share * (now - self._last_trials_ended), unspent) / self._overrun
