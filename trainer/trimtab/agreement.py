"""What all ranks agree on at the end of a step, carried by the step's last buffer as a note.

A note is a float32 vector that comes back summed over ranks with the same bits everywhere, so the commit of a step
(was everything finite? do we follow the same plan? does rank 0 have something to say?) costs no message of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

#: Whole numbers up to here are exact in float32, also summed over some thousand ranks.
MODULUS = 4096


class PlanMismatchError(RuntimeError):
    """Ranks have come to different plans or steps: continuing would corrupt the model."""


@dataclass(frozen=True)
class Note:
    """What one rank contributes."""

    finite: bool
    squared_norm_before: float
    squared_norm_after: float
    plan_version: int
    step: int
    has_message: bool
    """Rank 0 only: a message to all ranks follows this step."""

    def encode(self) -> Tensor:
        """float32 [6]."""
        before, after = self.squared_norm_before, self.squared_norm_after
        known = math.isfinite(before) and math.isfinite(after)
        return torch.tensor(
            [
                0.0 if self.finite else 1.0,
                before if known else 0.0,
                after if known else 0.0,
                float(self.plan_version % MODULUS),
                float(self.step % MODULUS),
                1.0 if self.has_message else 0.0,
            ],
            dtype=torch.float32,
        )


@dataclass(frozen=True)
class Agreement:
    """What the ranks' notes add up to; equal on every rank."""

    finite: bool
    gain: float
    """1 - sum of squared residuals after / sum of squared accumulations before, over ranks, in [0, 1]."""
    has_message: bool

    @classmethod
    def decode(cls, note: Tensor, num_ranks: int, plan_version: int, step: int) -> Agreement:
        """Read the summed note; raises `PlanMismatchError` where another rank follows another plan or step."""
        bad, before, after, version, step_sum, message = note.tolist()
        if version != num_ranks * (plan_version % MODULUS) or step_sum != num_ranks * (step % MODULUS):
            raise PlanMismatchError(
                f"ranks disagree: here plan version {plan_version}, step {step}; over {num_ranks} ranks the versions"
                f" add up to {version:g} and the steps to {step_sum:g}"
            )
        gain = 1.0 - after / before if before > 0 else 1.0
        return cls(bad == 0, min(1.0, max(0.0, gain)), message > 0)
