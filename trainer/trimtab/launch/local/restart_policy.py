"""Decides whether a failed run on this machine starts again, and after how long a pause. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_api.steps_of_attempts import MOST_WITHOUT_STEP, no_restart_reason, restarts_without_step
from trimtab_api.throttling import Backoff

#: Seconds before the first restart; each further one without a step in between waits twice as long.
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
_BACKOFF = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)


@dataclass
class RestartPolicy:
    """Counts the restarts of one run."""

    max_restarts: int
    num_restarts: int = 0
    """So far."""
    num_without_step: int = 0
    """The last restarts in a row that failed before their first step."""

    def failed(self, has_stepped: bool) -> float | None:
        """Count a failed attempt; return the seconds to wait before the next, None where there is to be none.

        Args:
            has_stepped: whether the attempt took a step.
        """
        self.num_without_step = restarts_without_step(self.num_without_step, self.num_restarts, has_stepped=has_stepped)
        if self.num_restarts >= self.max_restarts or self.num_without_step >= MOST_WITHOUT_STEP:
            return None
        self.num_restarts += 1
        return _BACKOFF.delay(self.num_without_step)

    @property
    def last_words(self) -> str:
        """The reason why there is no further restart, for the message; empty where none was."""
        if self.num_restarts == 0:
            return ""
        if self.num_restarts >= self.max_restarts:
            return f"after {self.num_restarts} restarts, the most that spec.maxRestarts allows: "
        return f"{no_restart_reason(self.num_restarts, self.num_without_step)}: "
