"""The true worth of steps, learned from the job's own loss: how far the law of relative steps is off for this job.

The law (`trimtab.control.cost_model.convergence`) says how many steps a plan needs beside dense. Where the plan
changes, the slope of the loss says whether that is so: where it falls half as fast as the law has it, the plan needs
twice the steps. A loss falls ever more slowly by itself, so slopes are compared along a curve that slows down with all
that was trained.

There are many hypotheses: the law is right; compressed gradients need twice what it says; selected updates need half;
updates sent whole need a third; ... Each has a Kalman filter of the loss and of its fall per dense step, and is
believed the more, the better it foretells the next loss. Under one plan all foretell alike, so that nothing is learned
but where plans change. Applied is what lies beyond one deviation of what is believed: nothing, until it is significant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, isfinite, log, log10, sqrt
from typing import Any

import numpy as np

from trimtab.control.cost_model.kalman import Array, LossFilters
from trimtab.plan.plan import Plan

#: Corrections in the logarithm, up to a factor of five; and the deviation that is expected of the law, from how far
#: apart the workloads are that it was measured on.
_OFFSETS, _EXPECTED = np.linspace(-1.8, 1.8, 9), 0.9
#: By how much the correction is larger at a tenth of the ratio.
_TILTS, _EXPECTED_TILT = np.array([-0.35, 0.0, 0.35]), 0.3
#: Where the offset holds without the tilt. A decade above and below, the correction stays what it is.
_MIDDLE_RATIO, _DECADES = 0.01, 1.0
_OF_SELECTED = np.stack([np.repeat(_OFFSETS, len(_TILTS)), np.tile(_TILTS, len(_OFFSETS))])
#: By what is sent, the lines (offset, tilt) that the correction may follow. What is sent whole has no ratio.
_LINES = {
    "gradient": _OF_SELECTED,
    "update": _OF_SELECTED,
    "whole update": np.stack([_OFFSETS, np.zeros_like(_OFFSETS)]),
}
_SENT = tuple(_LINES)

#: Losses whose differences tell their noise, and how many there must be before anything is learned.
_NOISE_WINDOW, _FEWEST_LOSSES = 64, 8
#: The median of the differences between two draws of a normal distribution, in its deviations.
_MEDIAN_DIFFERENCE = 0.954
#: Of a line beside the one that is believed most: at zero no loss could make it believed again.
_LEAST_WEIGHT = 1e-300
#: A correction that has moved by this factor since it was last acted upon reopens the choice.
_WORTH_A_LOOK = log(1.15)
#: A plan that certainly needs so many times the steps of the law is not proposed again.
_DISAPPOINTING = 1.25


@dataclass(frozen=True)
class Correction:
    """Factor on the steps that the law says a plan needs, as far as the job's own loss has shown it."""

    applied: float
    """The part that lies beyond one deviation; 1 without significance."""
    believed: float
    """The mean, in the logarithm."""
    deviation: float
    """One standard deviation, as a factor up or down."""

    @property
    def is_disappointing(self) -> bool:
        """True if steps certainly bring much less than the law promised."""
        return self.applied > _DISAPPOINTING


class Progress:
    """Learns from the loss of each step by how much to correct the law. It draws nothing and asks no clock."""

    def __init__(self) -> None:
        self._weights = {sent: _prior(lines) for sent, lines in _LINES.items()}
        """Log-weights of the lines of each kind that is sent, as they were when the hypotheses were made."""
        self._hypotheses: _Hypotheses | None = None
        self._differences: deque[float] = deque(maxlen=_NOISE_WINDOW)
        self._last: tuple[Plan, float] | None = None
        self._acted_upon = dict.fromkeys(_SENT, 0.0)
        self._moments: dict[str, tuple[float, ...]] = {}
        self._corrections: dict[tuple[str, float], Correction] = {}
        """Corrections since the last loss, by what is sent and its ratio: a decision asks a thousand times."""

    def observe(self, plan: Plan, loss: float, convergence_slowdown: float) -> None:
        """Take the loss at a step's beginning, or a round's mean, and the law's slowdown of its plan."""
        if not isfinite(loss):
            return
        last, self._last = self._last, (plan, loss)
        is_same_plan = last is not None and last[0] == plan
        if last is not None and is_same_plan:
            self._differences.append(abs(loss - last[1]))
        if len(self._differences) < _FEWEST_LOSSES:
            return
        noise = max(float(np.median(self._differences)) / _MEDIAN_DIFFERENCE, 1e-6 * abs(loss), 1e-12)
        by_law = max(1, plan.local_steps) / convergence_slowdown
        if self._hypotheses is None:
            self._hypotheses = _Hypotheses(self._weights, loss, noise, by_law, plan)
        self._hypotheses.predicted(loss, noise, by_law, plan, has_changed=not is_same_plan)
        self._moments.clear()
        self._corrections.clear()

    def correction(self, plan: Plan) -> Correction:
        """Return what is known of a plan, or of plans like it; a factor of 1 for dense gradients."""
        if (sent := _sent(plan)) is None:
            return Correction(1.0, 1.0, 1.0)
        if (sent, plan.ratio) not in self._corrections:
            self._corrections[sent, plan.ratio] = self._correction(sent, _decades_below_middle(plan))
        return self._corrections[sent, plan.ratio]

    @property
    def is_learning(self) -> bool:
        """True if losses are told, and enough of them were."""
        return self._hypotheses is not None

    @property
    def has_moved(self) -> bool:
        """True if a correction is another than when it was last acted upon."""
        return any(abs(now - self._acted_upon[sent]) > _WORTH_A_LOOK for sent, now in self._applied().items())

    def look(self) -> None:
        """Acknowledge the present corrections: what moves is counted from here."""
        self._acted_upon = self._applied()

    def state_dict(self) -> dict[str, Any]:
        """Return what is believed, as JSON data. The curve is learned anew."""
        believed = {sent: self._unnormalized(sent).tolist() for sent in self._weights}
        return {"weights": believed, "acted_upon": self._acted_upon}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned.

        What the state does not name, as whole updates once were not, is believed as before.
        """
        self._weights |= {sent: np.array(weights) for sent, weights in state["weights"].items()}
        self._acted_upon |= state["acted_upon"]
        self._moments.clear()
        self._corrections.clear()

    def _applied(self) -> dict[str, float]:
        """Return the logarithm of the correction that is applied in the middle, by what is sent."""
        return {sent: _beyond(of[0], sqrt(max(0.0, of[2]))) for sent in self._weights if (of := self._believed(sent))}

    def _correction(self, sent: str, at: float) -> Correction:
        """Return the correction of what is sent, at so many decades below the middle ratio."""
        offset, tilt, var_offset, cov, var_tilt = self._believed(sent)
        mean = offset + at * tilt
        deviation = sqrt(max(0.0, var_offset + 2 * at * cov + at**2 * var_tilt))
        return Correction(exp(_beyond(mean, deviation)), exp(mean), exp(deviation))

    def _believed(self, sent: str) -> tuple[float, ...]:
        """Return the means of offset and tilt, then the offset's variance, the covariance and the tilt's variance."""
        if sent not in self._moments:
            weights = np.exp(self._log_weights(sent))
            lines = _LINES[sent]
            means, second = lines @ weights, (lines * weights) @ lines.T
            spread = second - np.outer(means, means)
            self._moments[sent] = (*map(float, means), float(spread[0, 0]), float(spread[0, 1]), float(spread[1, 1]))
        return self._moments[sent]

    def _log_weights(self, sent: str) -> Array:
        """Return how much each line is believed, as normalized logarithms [lines]."""
        weights = self._unnormalized(sent)
        normalized: Array = weights - np.logaddexp.reduce(weights)
        return normalized

    def _unnormalized(self, sent: str) -> Array:
        known = None if self._hypotheses is None else self._hypotheses.log_weights(sent)
        return self._weights[sent] if known is None else known


class _Hypotheses:
    """A line for each thing that is sent with each line for the others: a filter, and how much it is believed."""

    def __init__(self, weights: Mapping[str, Array], loss: float, noise: float, by_law: float, plan: Plan) -> None:
        """Start from a first loss under a plan.

        Args:
            weights: By what is sent, the logarithm of how much each of its lines is believed.
            loss: The first loss.
            noise: One standard deviation of a loss from the curve.
            by_law: Dense steps that the plan's step brings by the law.
            plan: The plan of the step.
        """
        self._prior = weights
        self._log_weights = np.zeros([1] * len(_SENT))
        """[lines of each thing that is sent]; one of what was not sent yet."""
        self.add_axis(plan)
        self._filters = LossFilters.starting(loss, noise, by_law / self._factors(plan))

    def predicted(self, loss: float, noise: float, by_law: float, plan: Plan, *, has_changed: bool) -> None:
        """Believe each hypothesis the more, the better it predicted the loss after a step under a plan."""
        before = self._log_weights.shape
        self.add_axis(plan)
        if self._log_weights.shape != before:
            self._filters = self._filters.spread(before, self._log_weights.shape)
        if has_changed:
            self._filters.leap()
        told = self._filters.advance(loss, noise, by_law / self._factors(plan), by_law)
        self._log_weights = self._log_weights + told.reshape(self._log_weights.shape)
        self._log_weights = self._log_weights - self._log_weights.max()

    def add_axis(self, plan: Plan) -> None:
        """Add the lines of what a plan sends, if they are not there yet."""
        sent = _sent(plan)
        if sent is not None and self._log_weights.shape[_SENT.index(sent)] == 1:
            self._log_weights = self._log_weights + _along(sent, self._prior[sent])

    def _factors(self, plan: Plan) -> Array:
        """Return each hypothesis's correction of a plan, as factors [hypotheses]."""
        if (sent := _sent(plan)) is None:
            return np.ones(self._log_weights.size)
        lines = _LINES[sent]
        line = _along(sent, np.exp(lines[0] + lines[1] * _decades_below_middle(plan)))
        factors: Array = np.broadcast_to(line, self._log_weights.shape).reshape(-1)
        return factors

    def log_weights(self, sent: str) -> Array | None:
        """Return [lines] of a thing that is sent, whatever holds of the others; None if it was not sent yet."""
        axis = _SENT.index(sent)
        if self._log_weights.shape[axis] == 1:
            return None
        others = tuple(each for each in range(len(_SENT)) if each != axis)
        # The largest is 0, so nothing overflows; and this is a fourth of what logaddexp takes, in each step.
        of_it: Array = np.log(np.maximum(np.exp(self._log_weights).sum(axis=others), _LEAST_WEIGHT))
        return of_it


def _prior(lines: Array) -> Array:
    prior: Array = -((lines[0] / _EXPECTED) ** 2 + (lines[1] / _EXPECTED_TILT) ** 2) / 2
    return prior


def _along(sent: str, values: Array) -> Array:
    """[lines] of a thing that is sent, so that they broadcast along its axis."""
    along: Array = values.reshape([-1 if each == sent else 1 for each in _SENT])
    return along


def varies_with(plan: Plan, other: Plan) -> bool:
    """Return whether what is unknown of two plans' steps is the same, up to what their ratios tell apart."""
    return _sent(plan) == _sent(other)


def _sent(plan: Plan) -> str | None:
    """Return the kind of what a plan sends, by which the law is off; None for whole gradients, the reference."""
    if plan.is_dense:
        return "whole update" if plan.local_steps else None
    return "update" if plan.local_steps else "gradient"


def _decades_below_middle(plan: Plan) -> float:
    return max(-_DECADES, min(_DECADES, log10(_MIDDLE_RATIO / plan.ratio)))


def _beyond(mean: float, deviation: float) -> float:
    """Return the part of a mean that lies beyond one deviation from zero."""
    return max(0.0, mean - deviation) + min(0.0, mean + deviation)
