"""What all ranks agree on in each step, carried by the step's last bucket as a vote.

A vote is a float32 vector that comes back summed over ranks with the same bits everywhere, so the commit of a step (was
everything finite? do we follow the same plan? does rank 0 have something to say?) costs no message of its own. It holds
what a rank knows before the last message leaves: what came of the exchanges before it is voted on one step later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median_low

import torch
from torch import Tensor

from trimtab.engine.exchange import weight_fingerprint as fingerprint
from trimtab.engine.exchange.weight_fingerprint import Verdict, WeightFingerprint
from trimtab.transport.base import StepTag

#: Whole numbers up to here are exact in float32, also summed over some thousand ranks.
MODULUS = 4096
#: Steps between two comparisons of all ranks' weights.
STEPS_BETWEEN_FINGERPRINTS = 100
#: Numbers of a vote that are summed over ranks; two more of each rank follow.
_NUM_SHARED = 11


class PlanMismatchError(RuntimeError):
    """Ranks have come to different plans or steps: continuing would corrupt the model."""


def compares_weights(first_step: int, num_steps: int) -> bool:
    """Return whether the vote of an exchange of these steps carries ranks' fingerprints: once in a hundred steps."""
    last_step = first_step + num_steps - 1
    return last_step // STEPS_BETWEEN_FINGERPRINTS > max(first_step - 1, 0) // STEPS_BETWEEN_FINGERPRINTS


@dataclass(frozen=True)
class ExchangeSummary:
    """Summary of one rank's last exchanges, once they are over; told to all by the vote of the next step."""

    squared_norm_before: float = 0.0
    """Sum of squares of what was to be sent, residuals included."""
    squared_norm_after: float = 0.0
    """Sum of squares of the residuals that it left."""
    arrival_seconds: float = 0.0
    """Seconds from the end of the exchanges before until this rank had its last bucket compressed."""
    collective_seconds: float = 0.0
    """Sending and waiting for others."""
    loss: float | None = None
    """Loss of this rank's batch, or the mean over its local steps; None where the script does not tell it."""


@dataclass(frozen=True)
class StepFlags:
    """Flags and figures that one rank contributes to the vote."""

    finite: bool
    step_tag: StepTag
    num_steps: int
    """Steps of this rank that the exchange is of: 1, or those of its round."""
    has_message: bool
    """Rank 0 only: a message to all ranks follows this step."""
    participation_changed: bool
    """True if other parameters of this rank have a gradient than it told the others last."""
    before: ExchangeSummary
    """Summary of the step before."""

    def encode(self, rank: int, num_ranks: int, weights: WeightFingerprint | None = None) -> Tensor:
        """Return the vote: float32 [11 + 2 N], and [2 N + 1] more where ranks compare their ``weights``."""
        shared = [
            0.0 if self.finite else 1.0,
            self.before.squared_norm_before,
            self.before.squared_norm_after,
            float(self.step_tag.plan_version % MODULUS),
            float(self.step_tag.step % MODULUS),
            float(self.step_tag.trial % MODULUS),
            float(self.num_steps % MODULUS),
            1.0 if self.has_message else 0.0,
            1.0 if self.participation_changed else 0.0,
            self.before.loss or 0.0,
            0.0 if self.before.loss is None else 1.0,
        ]
        own = torch.zeros(2, num_ranks, dtype=torch.float32)
        own[0, rank], own[1, rank] = self.before.arrival_seconds, self.before.collective_seconds
        parts = [torch.tensor(shared, dtype=torch.float32), own.flatten()]
        if weights is not None:
            parts.append(fingerprint.slots(weights, rank, num_ranks))
        return torch.cat(parts)


@dataclass(frozen=True)
class StepConsensus:
    """Sum of the ranks' votes, read; equal on every rank."""

    finite: bool
    has_message: bool
    participation_changed: bool
    """On some rank; all tell each other before the optimizer steps."""
    gain: float | None
    """Of the step before: 1 - sum of squared residuals after / sum of squares before, over ranks, in [0, 1].

    None where there was no such step under this plan.
    """
    mean_squared_norm: float | None
    """Mean over ranks of what each had to send in the step before, squared and summed; None as for the gain."""
    arrival_seconds: tuple[float, ...]
    """Seconds of the step before, by rank (`ExchangeSummary`); all 0 where there was none."""
    collective_seconds: tuple[float, ...]
    """Seconds of the step before, by rank."""
    loss: float | None = None
    """Loss of the step before, or the round: the mean over the ranks that tell one; None where none does."""
    weights: Verdict | None = None
    """Verdict on the ranks' weights; None where this step did not compare them."""

    @property
    def last_rank(self) -> int | None:
        """The rank that came last to the exchange of the step before; None where it is not known."""
        if not any(self.arrival_seconds):
            return None
        return self.arrival_seconds.index(max(self.arrival_seconds))

    @property
    def late_seconds(self) -> float:
        """Seconds by which the last rank came after the median one."""
        return max(self.arrival_seconds) - median_low(self.arrival_seconds)

    @classmethod
    def decode(cls, vote: Tensor, num_ranks: int, step_tag: StepTag, num_steps: int, step: int) -> StepConsensus:
        """Read the summed vote of an exchange.

        Args:
            vote: The votes of all ranks, added up: float32 [11 + 2 N], or [12 + 4 N] with fingerprints.
            num_ranks: N.
            step_tag: Where this rank is.
            num_steps: Training steps that the exchange is of.
            step: The last of these steps.

        Raises:
            PlanMismatchError: Another rank follows another plan, step, trial or round.
            RanksDivergedError: Another rank holds other weights.
        """
        numbers = vote.tolist()
        bad, before, after, version, at, trial, steps, message, participation, loss, losses = numbers[:_NUM_SHARED]
        own, fingerprints = numbers[_NUM_SHARED:][: 2 * num_ranks], numbers[_NUM_SHARED + 2 * num_ranks :]
        here = (step_tag.plan_version, step_tag.step, step_tag.trial)
        if (version, at, trial) != tuple(num_ranks * (number % MODULUS) for number in here):
            raise PlanMismatchError(
                f"ranks disagree: here {step_tag}; over {num_ranks} ranks the plans' versions add up to {version:g},"
                f" the steps to {at:g} and the trials to {trial:g}"
            )
        if steps != num_ranks * (num_steps % MODULUS):
            raise PlanMismatchError(
                f"ranks are not at the same step of a round: here it has {num_steps} local steps, over {num_ranks}"
                f" ranks {steps:g}. Every rank takes as many steps, and ends a loop over session.batches or calls"
                " session.end_round at the same one"
            )
        return cls(
            finite=bad == 0,
            has_message=message > 0,
            participation_changed=participation > 0,
            gain=_gain(before, after),
            mean_squared_norm=before / num_ranks if before > 0 and math.isfinite(before) else None,
            arrival_seconds=tuple(own[:num_ranks]),
            collective_seconds=tuple(own[num_ranks:]),
            loss=loss / losses if losses else None,
            weights=fingerprint.compare(fingerprints, step) if fingerprints else None,
        )


def _gain(before: float, after: float) -> float | None:
    if not before > 0 or not math.isfinite(before):
        return None
    return min(1.0, max(0.0, 1.0 - after / before))
