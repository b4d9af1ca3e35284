"""Whether a run on this machine that failed starts again, and after how long a pause. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Of the first restart, in seconds; each further one without a step in between waits twice as long.
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
#: Restarts in a row that fail before their first step, after which the next would fail as well.
MOST_WITHOUT_A_STEP = 2


@dataclass
class RestartPolicy:
    """Counts the restarts of one run."""

    max_restarts: int
    num_restarts: int = 0
    """So far."""
    num_without_a_step: int = 0
    """The last restarts in a row that failed before their first step."""

    def failed(self, has_stepped: bool) -> float | None:
        """Count a failed attempt; return the seconds to wait before the next, None where there is to be none.

        Args:
            has_stepped: whether the attempt took a step.
        """
        if has_stepped:
            self.num_without_a_step = 0
        elif self.num_restarts:  # the very first attempt is no restart
            self.num_without_a_step += 1
        if self.num_restarts >= self.max_restarts or self.num_without_a_step >= MOST_WITHOUT_A_STEP:
            return None
        self.num_restarts += 1
        doubled: float = FIRST_PAUSE_SECONDS * 2.0 ** min(self.num_without_a_step, 30)
        return min(LONGEST_PAUSE_SECONDS, doubled)

    @property
    def last_words(self) -> str:
        """Why there is no further restart, for the message; empty where none was."""
        if self.num_restarts == 0:
            return ""
        if self.num_restarts >= self.max_restarts:
            return f"after {self.num_restarts} restarts, the most that spec.maxRestarts allows: "
        return (
            f"after {self.num_restarts} restarts, the last {self.num_without_a_step} of which failed before their first"
            " step, as the next one would: "
        )
