"""Where the training thread's time goes in a step, by the host's clock: it never waits for a device.

On a GPU what backward has queued is still computed while the thread waits for the exchange: there that part of
computing is told as exposed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Literal, get_args

from trimtab.plan.profile import Profile

Phase = Literal["forward", "backward", "exposed", "optimizer", "other"]
"""What the thread does: from a step's end until backward begins (drawing the batch, the forward pass, the loss);
backward, with what it hands to the exchange; waiting for the exchange, before the update or in the forward pass; the
optimizer's step; all else."""

PHASES: tuple[Phase, ...] = get_args(Phase)


class PhaseTimer:
    """All time belongs to one phase, so that phases make up the step."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._mark = clock()
        self.phase: Phase = "forward"
        """The present phase."""
        self._seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        self._first_gradient_seconds = 0.0
        """Seconds from the start of backward to its first complete gradient, before which nothing tells of backward."""

    def learn(self, profile: Profile | None) -> Profile | None:
        """Take from ``profile`` the seconds before the first gradient of a backward pass, and return ``profile``."""
        if profile is not None:
            self._first_gradient_seconds = profile.first_gradient_seconds
        return profile

    def enter(self, phase: Phase) -> None:
        """Count time for ``phase`` from now on."""
        left, now = self.phase, self.clock()
        elapsed = now - self._mark
        self._seconds[left] += elapsed
        if left == "forward" and phase == "backward":
            hidden = min(self._first_gradient_seconds, elapsed)
            self._seconds[left] -= hidden
            self._seconds["backward"] += hidden
        self.phase, self._mark = phase, now

    @contextlib.contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Count time inside for ``phase``, and afterwards for the phase before."""
        around = self.phase
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(around)

    def lap(self) -> dict[Phase, float]:
        """Return the seconds of each phase of the step that ends now; the next begins with its forward pass."""
        self.enter("forward")
        ended, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return ended
