"""Changes of the gain: of its average over a window of steps, which the noise of single steps does not move."""

from __future__ import annotations

from math import log
from typing import Any


class GainWatch:
    """Compares the average gain of one plan's last steps with what it was when it was last acted upon.

    The gain of another plan has nothing to do with it: each plan has a watch of its own.
    """

    def __init__(self, change: float, window: int) -> None:
        self._change = log(1 + change)
        self._window = window
        self._steps = 0
        self._average = 0.0
        self._reference: float | None = None

    @property
    def settled(self) -> float | None:
        """The average once a whole window has passed under the present plan; None before: the residual still fills."""
        return self._average if self._steps >= self._window else None

    @property
    def moved(self) -> bool:
        """True if the average has left the reference behind."""
        return (
            self._reference is not None
            and self._steps >= self._window
            and abs(log(self._average / self._reference)) > self._change
        )

    def observe(self, gain: float) -> None:
        """Take the gain of one step into the average."""
        gain = max(gain, 1e-6)
        self._steps += 1
        # While the residual fills up the gain falls: the first half of the window is forgotten faster.
        weight = max(2 / (self._steps + 1), 2 / (self._window + 1))
        self._average += weight * (gain - self._average)
        if self._reference is None and self._steps >= self._window:
            self._reference = self._average

    def look(self) -> None:
        """Acknowledge the present average: the next change is counted from here."""
        self._reference = self._average if self._steps >= self._window else None

    def state_dict(self) -> dict[str, Any]:
        """Return where the average stands, as JSON data."""
        return {"steps": self._steps, "average": self._average, "reference": self._reference}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._steps, self._average, self._reference = state["steps"], state["average"], state["reference"]
