"""DeFT's Preserver: it accepts fewer updates by larger batches if they lower the loss as one an iteration would.

Training is taken for a random walk of the loss that rebounds from its objective (DeFT, section IV.C; Yin et al., KDD
2017): a step with a batch of B lowers it by the learning rate times a number drawn from Normal(mu, sigma^2 / B).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erf, exp, pi, sqrt

from trimtab.plan.profile import Profile
from trimtab.plan.timetable import Timetable

#: By how much the ratio of both expected losses may differ from 1 (epsilon, section IV.C.3).
_TOLERANCE = 0.01
#: A timetable that is refused is solved again with knapsacks so much larger, so many times at most.
_GROWTH, _MOST_RETRIES = 1.1, 10

#: Steps of training before which nothing is delayed: a delay that training does not bear costs one or two dozen steps
#: until the loss shows it, and as many to make up for them.
_FIRST_DELAY = 100


@dataclass(frozen=True)
class LossModel:
    """Inputs of the expected loss, at one stage of training."""

    loss: float
    """Present state of the walk: s."""
    learning_rate: float
    """SGD's learning rate, momentum included: eta."""
    squared_gradient_norm: float
    """mu: by the square of the mean gradient's norm, times the learning rate, a step lowers the loss."""
    noise: float
    """Standard deviation of that number from batch to batch, for one iteration's batch: sigma / sqrt(B)."""
    sums: bool = False
    """True if an update takes the sum of its iterations' gradients, not their mean."""

    def after(self, batches: Sequence[int]) -> float:
        """Return the expected loss after an update by each of the batches (section IV.C.2), for an objective of 0.

        Args:
            batches: Iterations that each batch merges.
        """
        expected = self.loss
        for size in batches:
            rate = self.learning_rate * size if self.sums else self.learning_rate
            spread = rate * self.noise / sqrt(size)
            middle = expected - rate * self.squared_gradient_norm
            if spread > 0:
                a = middle / spread
                expected = middle * erf(a / sqrt(2)) + spread * sqrt(2 / pi) * exp(-a * a / 2)
            else:
                expected = abs(middle)
        return expected

    def accepts(self, batches: Sequence[int]) -> bool:
        """Return whether the expected loss is within 1% of that of as many single iterations (section IV.C.3)."""
        one_by_one, merged = self.after([1] * sum(batches)), self.after(batches)
        return merged > 0 and abs(one_by_one / merged - 1) <= _TOLERANCE


def loss_model(profile: Profile, *, is_sgd: bool, sums: bool = False) -> LossModel | None:
    """Return the loss model of a profile; None if the script does not report its loss, or the model does not hold.

    The model holds for SGD: what a step of Adam's kin does to the loss does not depend on the gradient's norm alone.
    Noise is taken to have no direction of its own, which understates it, and with it the benefit of a larger batch.
    """
    squared_norm, variance = profile.squared_gradient_norm, profile.gradient_variance
    if not is_sgd or profile.loss is None or profile.loss <= 0 or profile.learning_rate is None:
        return None
    if squared_norm is None or variance is None:
        return None
    num_elements = max((module.stop for module in profile.modules), default=1)
    noise = sqrt(squared_norm * variance / num_elements)
    return LossModel(profile.loss, profile.learning_rate, squared_norm, noise, sums)


def is_too_early(profile: Profile) -> bool:
    """Return whether training is young, or the loss was not seen yet to fall as its gradients promise."""
    return profile.step < _FIRST_DELAY or profile.kept_promise is None


def preserved(
    solve: Callable[[float], Timetable], merged: Callable[[Timetable], Sequence[int]], model: LossModel | None
) -> Timetable | None:
    """Return the first timetable that the loss model accepts, with knapsacks enlarged as needed; None without one.

    Args:
        solve: Makes a timetable, for knapsacks enlarged by a factor.
        merged: Returns the iterations that each update of a timetable merges.
        model: Without one, only a timetable that updates in each iteration is accepted.
    """
    for retry in range(1 + _MOST_RETRIES):
        made = solve(_GROWTH**retry)
        batches = merged(made)
        if max(batches) == 1 or (model is not None and model.accepts(batches)):
            return made
    return None
