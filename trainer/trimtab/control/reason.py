"""Why a decision was taken, in one plain sentence."""

from __future__ import annotations

from trimtab_api.units import format_duration

from trimtab.control.decision import Point
from trimtab.control.knee import relative_steps


def reason_to_keep(present: Point, best: Point) -> str:
    """The present plan stays."""
    if best.plan.with_version(0) == present.plan.with_version(0):
        return f"nothing is predicted to be better than {present.plan.name}"
    return f"{_instead(best, present)}: not enough to be worth a change"


def reason_to_change(present: Point, chosen: Point) -> str:
    """Another plan is adopted."""
    if chosen.plan.is_dense:
        return f"no sparse plan is predicted to reach the target sooner than {chosen.plan.name}"
    return _instead(chosen, present)


def reason_to_start(dense: Point, chosen: Point) -> str:
    """The warm-up is not dense."""
    return (
        f"{format_duration(dense.step_seconds)} for each dense step of the warm-up is too long; the largest ratio is "
        f"as good to begin with: {chosen.plan.name} should take {format_duration(chosen.step_seconds)}"
    )


def _instead(one: Point, other: Point) -> str:
    return (
        f"{one.plan.name} should take {format_duration(one.step_seconds)} a step instead of "
        f"{format_duration(other.step_seconds)} with {other.plan.name}, and {relative_steps(one):.2f} times "
        f"as many steps as dense instead of {relative_steps(other):.2f}"
    )
