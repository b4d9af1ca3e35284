"""The engine of a process that trains alone: the same calls as those of `StepEngine`, and nothing is exchanged."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from trimtab.engine.debug_state import DebugState
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.optimizer.stepper import OptimizerStepper
from trimtab.plan.plan import Plan


class SingleProcessEngine:
    """Takes plain steps of some optimizers."""

    has_begun = False
    """As nobody else waits for this process, a step has no beginning."""
    is_discardable = False

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], stepper: OptimizerStepper, plan: Plan) -> None:
        """``plan`` is only what the session shows: there is nobody to follow it with."""
        self._optimizers, self._stepper, self.plan = optimizers, stepper, plan

    def close(self) -> None:
        """Let go of nothing: an engine alone holds nothing."""

    def step(self) -> Outcome:
        """Step the optimizers; afterwards gradients are released."""
        self._stepper.step()
        self.skip()
        return Outcome.of_local_step(())

    def finalize_gradients(self, optimizer: torch.optim.Optimizer | None = None) -> Outcome:
        """Leave gradients as they are: they are what ``optimizer`` is to see."""
        return Outcome.of_local_step(())

    def on_step_end(self, outcome: Outcome) -> Outcome:
        """Return what became of the step, which is known already."""
        return outcome

    def skip(self) -> Outcome | None:
        """Throw away what backward passes have left since the last step, which counts for no step."""
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        return None

    def leave_step(self) -> Outcome | None:
        """Leave gradients as they are where the script goes on to the next batch, which counts for no step."""
        return None

    def synchronize(self) -> None:
        """Leave gradients as they are."""

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which backward passes only accumulate, as they always do."""
        return contextlib.nullcontext()

    def at_anchor(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the weights are what they are."""
        return contextlib.nullcontext()

    def resume_at(self, step: int) -> None:
        """Go on as if ``step`` steps of training had been taken."""

    def debug_state(self) -> DebugState:
        """Return the state of an exchange that holds nothing."""
        return DebugState()

    def drain_traces(self) -> list[dict[str, Any]]:
        """Return no line of ``trace.jsonl``: nothing is profiled."""
        return []
