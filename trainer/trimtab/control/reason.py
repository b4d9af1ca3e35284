"""Reasons of decisions, each in one plain sentence."""

from __future__ import annotations

from math import expm1

from trimtab_api.catalogue import wires
from trimtab_api.units import format_duration

from trimtab.control.cost_model.convergence_learning import Correction
from trimtab.control.decision import Prediction
from trimtab.control.types import OptimizerFamily
from trimtab.plan.plan import Plan


def reason_to_keep(present: Prediction, best: Prediction, gained: float, needed: float, faster: bool) -> str:
    """Say why the present plan stays.

    Args:
        present: The present plan.
        best: The plan that would be the change.
        gained: The logarithm of how much sooner the best reaches the target.
        needed: What that must be for a change.
        faster: Whether the best has a step so much shorter that a change would be for its sake, not for the gain's.
    """
    if gained <= 0 or best.plan.with_version(0) == present.plan.with_version(0):
        return f"{present.plan.name} stays: no other plan is predicted to reach the target sooner"
    purpose = "" if faster else " to a step that is hardly shorter"
    return (
        f"{_instead(best, present)}. It should reach the target {expm1(gained):.1%} sooner, and a change{purpose} needs"
        f" {expm1(needed):.1%}"
    )


def reason_to_change(present: Prediction, chosen: Prediction) -> str:
    """Say why another plan is adopted."""
    if chosen.plan.is_dense and not chosen.plan.local_steps and chosen.plan.wire == wires.default:
        return f"no sparse plan is predicted to reach the target sooner than {chosen.plan.name}"
    return _instead(chosen, present)


def reason_to_start(dense: Prediction, chosen: Prediction) -> str:
    """Say why the warm-up is not dense."""
    return (
        f"initial choice from assumptions about the machine, until steps are measured: {chosen.plan.name} should take "
        f"{format_duration(chosen.step_seconds)} a step, and dense {format_duration(dense.step_seconds)}"
    )


def of_optimizer(reason: str, optimizer: OptimizerFamily) -> str:
    """Return a reason; if it rests on a guess of the optimizer, it says so."""
    if optimizer.kind != "unknown":
        return reason
    return f"{reason} (what compression costs {optimizer.name} is not known: charged like Adam, which it costs most)"


def of_progress(reason: str, left: Plan, correction: Correction) -> str:
    """Say why a plan is left if the job's own loss has shown that its steps bring less than was promised."""
    return (
        f"by the job's own loss a step of {left.name} brings {1 / correction.believed:.0%} of what was promised "
        f"(within a factor of {correction.deviation:.2f}): {reason}"
    )


def _instead(one: Prediction, other: Prediction) -> str:
    seconds, other_seconds = (format_duration(each.step_seconds) for each in (one, other))
    return (
        f"{one.plan.name} should take {seconds} a step and {one.convergence_slowdown:.2f} times as many steps as dense;"
        f" {other.plan.name} should take {other_seconds} and {other.convergence_slowdown:.2f} times as many"
    )
