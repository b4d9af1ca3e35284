"""Time and gain of selection, measured at some ratios and interpolated in log c to the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Any

from trimtab_api.catalogue import collectives

from trimtab.plan.plan import Plan


@dataclass(frozen=True)
class _Known:
    """One measured point: how far (in log) it lies from the prior at its ratio."""

    log_ratio: float
    offset: float
    step: int


class Curve:
    """A positive quantity by (scheme, selection) and ratio: a prior law, shifted by what was measured.

    Between two measured ratios the shift is interpolated in log c, beyond them it is the nearest one's. A scheme that
    was never run takes the shift of its kin: the same family first (all-gather, AR-Topk), then any.
    """

    def __init__(self, prior: Callable[[Plan], float], max_age_steps: int) -> None:
        self._prior = prior
        self._max_age_steps = max_age_steps
        self._known: dict[str, dict[float, _Known]] = {}
        self._shifts: dict[str, list[tuple[float, float]]] = {}
        """Shift by log ratio of each scheme that was asked for since the last observation: kin are looked up once."""

    def observe(self, plan: Plan, value: float, step: int) -> None:
        """Learn the value measured under a plan, in place of what was known at (about) its ratio."""
        if plan.is_dense or value <= 0:
            return
        points = self._known.setdefault(key_of(plan), {})
        log_ratio = log(plan.ratio)
        points[round(log_ratio, 1)] = _Known(log_ratio, log(value / self._prior(plan)), step)
        self._shifts.clear()

    def knows(self, plan: Plan, step: int) -> bool:
        """Return whether the value was measured under this plan, not too long ago."""
        known = self._known.get(key_of(plan), {}).get(round(log(plan.ratio), 1))
        return known is not None and step - known.step <= self._max_age_steps

    def __call__(self, plan: Plan) -> float:
        """Return the value predicted under a plan."""
        key = key_of(plan)
        if key not in self._shifts:
            self._shifts[key] = _by_ratio(self._nearest_kin(key))
        return self._prior(plan) * exp(_interpolate(self._shifts[key], log(plan.ratio)))

    def _nearest_kin(self, key: str) -> list[_Known]:
        by_kinship: tuple[Callable[[str], bool], ...] = (
            lambda other: other == key,
            lambda other: _family(other) == _family(key),
            lambda other: True,
        )
        for is_kin in by_kinship:
            points = [known for other, at in self._known.items() if is_kin(other) for known in at.values()]
            if points:
                # What has aged is dropped, but the newest is better than nothing.
                newest = max(known.step for known in points)
                return [known for known in points if newest - known.step <= self._max_age_steps]
        return []

    def state_dict(self) -> dict[str, list[list[float]]]:
        """Return the measured points, as JSON data."""
        return {
            key: [[known.log_ratio, known.offset, known.step] for known in points.values()]
            for key, points in self._known.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self._known = {
            key: {round(point[0], 1): _Known(point[0], point[1], int(point[2])) for point in points}
            for key, points in state.items()
        }
        self._shifts.clear()


def key_of(plan: Plan) -> str:
    """Return all that decides what selection takes and what gets through, but for the ratio."""
    return "/".join((plan.collective, plan.sparsifier, plan.fusion.selection, plan.source, plan.wire))


def _family(key: str) -> str:
    return collectives[key.partition("/")[0]].family


def _by_ratio(points: list[_Known]) -> list[tuple[float, float]]:
    """Return log ratios, ascending, and the mean offset of the points at each."""
    by_ratio: dict[float, list[float]] = {}
    for known in points:
        by_ratio.setdefault(known.log_ratio, []).append(known.offset)
    return [(ratio, sum(by_ratio[ratio]) / len(by_ratio[ratio])) for ratio in sorted(by_ratio)]


def _interpolate(shifts: list[tuple[float, float]], log_ratio: float) -> float:
    if not shifts:
        return 0.0
    if log_ratio <= shifts[0][0]:
        return shifts[0][1]
    for (low, below), (high, above) in pairwise(shifts):
        if log_ratio <= high:
            return below + (above - below) * (log_ratio - low) / (high - low)
    return shifts[-1][1]
