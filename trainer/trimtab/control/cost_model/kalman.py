"""Kalman filters of a loss that falls ever more slowly: one for each hypothesis of what steps bring, side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: The fall per dense step goes with the clock to minus this power: of power laws it is between 1 and 1.5.
_SLOWING = 1.2
#: By how much it wanders from there, as a share of itself, while the clock grows e-fold.
_WANDERING = 0.3
#: What the clock shows before the first step: at first a loss falls steadily.
_HEAD_START = 20.0
#: Where the plan changes the loss may leap by what so many dense steps bring: residuals fill, or run dry.
_LEAP_STEPS = 4.0
#: Of its value, the most that a step may take from the loss when training begins.
_STEEPEST = 0.1
#: A loss that is off by more deviations is an outlier, and counts as one that is off by so many.
_OUTLIER = 2.5


@dataclass
class LossFilters:
    """Means and (co)variances, [hypotheses] each, of the loss and of its fall per dense step.

    All go by one clock, the dense steps taken by law, so that under one plan all predict alike: if a hypothesis has
    more dense steps taken, the loss falls the less in each.
    """

    loss: Array
    fall: Array
    loss_variance: Array
    covariance: Array
    fall_variance: Array
    clock: float = _HEAD_START

    @classmethod
    def starting(cls, loss: float, noise: float, dense_steps: Array) -> LossFilters:
        """Create filters that know a first loss and no fall.

        Args:
            loss: The first loss.
            noise: One standard deviation of a loss from the curve.
            dense_steps: [hypotheses], what the first step brings.
        """
        nothing = np.zeros(len(dense_steps))
        return cls(nothing + loss, nothing, nothing + noise**2, nothing, (_STEEPEST * loss / dense_steps) ** 2)

    def spread(self, before: tuple[int, ...], after: tuple[int, ...]) -> LossFilters:
        """Broadcast hypotheses of shape ``before`` to shape ``after``, repeating each where that is wider."""
        loss, fall, loss_variance, covariance, fall_variance = (
            np.broadcast_to(each.reshape(before), after).reshape(-1)
            for each in (self.loss, self.fall, self.loss_variance, self.covariance, self.fall_variance)
        )
        return LossFilters(loss, fall, loss_variance, covariance, fall_variance, self.clock)

    def leap(self) -> None:
        """Go on after a change of plan, from a loss that is known less well."""
        self.loss_variance = self.loss_variance + _LEAP_STEPS**2 * (self.fall**2 + self.fall_variance)

    def advance(self, loss: float, noise: float, dense_steps: Array, by_law: float) -> Array:
        """Predict the loss after so many dense steps, and learn from the one observed.

        Args:
            loss: The observed loss; a far outlier counts as a nearer one.
            noise: One standard deviation of a loss from the curve.
            dense_steps: [hypotheses], what the step brings.
            by_law: Dense steps that it brings by the law, which the clock counts.

        Returns:
            [hypotheses], the log-likelihood that each gave the loss, up to a constant.
        """
        self._foretell(dense_steps, by_law)
        variance = self.loss_variance + noise**2
        off = loss - self.loss
        off = off / np.maximum(1.0, np.abs(off) / (_OUTLIER * np.sqrt(variance)))
        gain, fall_gain = self.loss_variance / variance, self.covariance / variance
        self.loss, self.fall = self.loss + gain * off, self.fall + fall_gain * off
        self.fall_variance = self.fall_variance - fall_gain * self.covariance
        self.covariance, self.loss_variance = self.covariance * (1 - gain), self.loss_variance * (1 - gain)
        told: Array = -(np.log(variance) + off**2 / variance) / 2
        return told

    def _foretell(self, steps: Array, by_law: float) -> None:
        self.loss = self.loss - self.fall * steps
        self.loss_variance = self.loss_variance - 2 * steps * self.covariance + steps**2 * self.fall_variance
        self.covariance = self.covariance - steps * self.fall_variance
        slowed = (self.clock / (self.clock + by_law)) ** _SLOWING
        self.clock += by_law
        wandered = (_WANDERING * self.fall) ** 2 * by_law / self.clock
        self.fall, self.covariance = self.fall * slowed, self.covariance * slowed
        self.fall_variance = self.fall_variance * slowed**2 + wandered
