"""Steps that were dropped because a gradient was not finite, in a sentence for people."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.run_files.schema import LeftOutSteps, Step


class DroppedSteps:
    """Counts the training steps of a run, and those that were dropped."""

    def __init__(self, steps: Iterable[Step] = (), left_out: Iterable[LeftOutSteps] = ()) -> None:
        self.num_steps, self.num, self.num_left_out = 0, 0, 0
        self.by = ""
        """The rank and the parameter of the last one, where that is known."""
        self.left_out_at: int | None = None
        """The step at which the last ones were told of."""
        self.left_out_by = ""
        """The ranks and parameters of those that ranks left out by themselves."""
        for step in steps:
            self.add(step)
        for told in left_out:
            self.add_left_out(told)

    def add(self, step: Step) -> None:
        """Count a step, unless it belongs to a trial."""
        if step.trial:
            return
        self.num_steps += 1
        if step.was_dropped:
            self.num += 1
            self.by = step.dropped_by or self.by

    def add_left_out(self, told: LeftOutSteps) -> None:
        """Count local steps that ranks left out by themselves."""
        self.num_left_out += told.num
        self.left_out_at, self.left_out_by = told.step, told.by

    def __str__(self) -> str:
        """Say how many; empty where no step was dropped."""
        by = f" ({self.by})" if self.by else ""
        of_all = f"{self.num} of {self.num_steps} steps were dropped, since a gradient was not finite{by}"
        steps = "1 local step was" if self.num_left_out == 1 else f"{self.num_left_out} local steps were"
        alone = f"{steps} left out by their rank alone, since its gradient was not finite ({self.left_out_by})"
        return "; ".join(([of_all] if self.num else []) + ([alone] if self.num_left_out else []))
