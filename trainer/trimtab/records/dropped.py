"""Steps that were dropped because a gradient was not finite, in a sentence for people."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.records.lines import Step


class DroppedSteps:
    """Counts the training steps of a run, and those that were dropped."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.num_steps, self.num = 0, 0
        self.by = ""
        """The rank and the parameter of the last one, where that is known."""
        for step in steps:
            self.add(step)

    def add(self, step: Step) -> None:
        """Count a step, unless it belongs to a trial."""
        if step.trial:
            return
        self.num_steps += 1
        if step.was_dropped:
            self.num += 1
            self.by = step.dropped_by or self.by

    def __str__(self) -> str:
        """Empty where no step was dropped."""
        if not self.num:
            return ""
        by = f" ({self.by})" if self.by else ""
        return f"{self.num} of {self.num_steps} steps were dropped, since a gradient was not finite{by}"
