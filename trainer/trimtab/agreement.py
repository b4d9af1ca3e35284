"""What all ranks agree on at the end of a step, carried by the step's last buffer as a note.

A note is a float32 vector that comes back summed over ranks with the same bits everywhere, so the commit of a step
(was everything finite? do we follow the same plan? does rank 0 have something to say?) costs no message of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab import fingerprint
from trimtab.collectives.transport import Place
from trimtab.fingerprint import Fingerprint, Verdict

#: Whole numbers up to here are exact in float32, also summed over some thousand ranks.
MODULUS = 4096
#: Steps between two comparisons of all ranks' weights.
STEPS_BETWEEN_FINGERPRINTS = 100


class PlanMismatchError(RuntimeError):
    """Ranks have come to different plans or steps: continuing would corrupt the model."""


def compares_weights(place: Place) -> bool:
    """Whether the note of a step carries the ranks' fingerprints; the same on every rank."""
    return place.trial == 0 and place.step > 0 and place.step % STEPS_BETWEEN_FINGERPRINTS == 0


@dataclass(frozen=True)
class Note:
    """What one rank contributes."""

    finite: bool
    squared_norm_before: float
    squared_norm_after: float
    place: Place
    has_message: bool
    """Rank 0 only: a message to all ranks follows this step."""
    participation_changed: bool
    """Which of this rank's parameters have a gradient is not what all ranks were told last."""

    def encode(self) -> Tensor:
        """float32 [8]."""
        before, after = self.squared_norm_before, self.squared_norm_after
        known = math.isfinite(before) and math.isfinite(after)
        return torch.tensor(
            [
                0.0 if self.finite else 1.0,
                before if known else 0.0,
                after if known else 0.0,
                float(self.place.plan_version % MODULUS),
                float(self.place.step % MODULUS),
                float(self.place.trial % MODULUS),
                1.0 if self.has_message else 0.0,
                1.0 if self.participation_changed else 0.0,
            ],
            dtype=torch.float32,
        )

    def encode_with(self, weights: Fingerprint, rank: int, num_ranks: int) -> Tensor:
        """float32 [8 + 2 N + 1]: the note and this rank's fingerprint."""
        return torch.cat([self.encode(), fingerprint.slots(weights, rank, num_ranks)])


@dataclass(frozen=True)
class Agreement:
    """What the ranks' notes add up to; equal on every rank."""

    finite: bool
    gain: float
    """1 - sum of squared residuals after / sum of squared accumulations before, over ranks, in [0, 1]."""
    has_message: bool
    participation_changed: bool
    """On some rank; all tell each other before the optimizer steps."""
    weights: Verdict | None = None
    """Whether the ranks' weights are the same; None where this step did not compare them."""

    @classmethod
    def decode(cls, note: Tensor, num_ranks: int, place: Place) -> Agreement:
        """Read the summed note.

        Raises `PlanMismatchError` where another rank follows another plan, step or trial, and `RanksDivergedError`
        where one holds other weights.
        """
        bad, before, after, version, step, trial, message, participation, *fingerprints = note.tolist()
        here = (place.plan_version, place.step, place.trial)
        if (version, step, trial) != tuple(num_ranks * (number % MODULUS) for number in here):
            raise PlanMismatchError(
                f"ranks disagree: here {place}; over {num_ranks} ranks the plans' versions add up to {version:g},"
                f" the steps to {step:g} and the trials to {trial:g}"
            )
        gain = 1.0 - after / before if before > 0 else 1.0
        return cls(
            finite=bad == 0,
            gain=min(1.0, max(0.0, gain)),
            has_message=message > 0,
            participation_changed=participation > 0,
            weights=fingerprint.compare(fingerprints, place.step) if fingerprints else None,
        )
