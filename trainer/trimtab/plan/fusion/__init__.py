"""Fusion planners: which gradient elements share a buffer, from sizes, profile and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimtab_api import catalogue
from trimtab_api.catalogue.fusion import MOST_BUFFERS
from trimtab_api.errors import UserError

from trimtab.plan.fusion.base import BufferCosts
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import Profile


def plan_of(
    planner: str, tensor_sizes: Sequence[int], *, profile: Profile | None = None, costs: BufferCosts | None = None
) -> FusionPlan:
    """Make the fusion plan of a planner.

    Args:
        planner: Name and options of the planner.
        tensor_sizes: Elements of each tensor, in backward order.
        profile: Measured times of a step, if there are any.
        costs: Seconds of a buffer, if they are known.

    Raises:
        UserError: The planner or an option is unknown, a cut lies beyond the last element, or there are more buffers
            than
        `MOST_BUFFERS`.
    """
    if not any(tensor_sizes):
        raise UserError("no parameter that requires a gradient has an element", field="model")
    cuts = catalogue.planners.create(planner, *_with_elements(profile, tensor_sizes), costs or BufferCosts())
    if cuts[-1] >= sum(tensor_sizes):
        raise UserError(
            f"the model has {sum(tensor_sizes)} elements; cut before the last, not at {cuts[-1]}",
            field="fusion",
            value=planner,
        )
    if len(cuts) > MOST_BUFFERS:
        raise UserError(
            f"would make {len(cuts)} buffers, and {MOST_BUFFERS} are the most; ask for larger ones",
            field="fusion",
            value=planner,
        )
    return FusionPlan(cuts, planner=planner)


def _with_elements(profile: Profile | None, tensor_sizes: Sequence[int]) -> tuple[Profile | None, tuple[int, ...]]:
    """Drop empty tensors, which have no buffer: two cuts at one element would leave one buffer without any.

    The time of an empty tensor's gradient counts to the next tensor, or to the last one.
    """
    sizes = tuple(size for size in tensor_sizes if size)
    if profile is None or len(sizes) == len(tensor_sizes):
        return profile, sizes
    seconds, passed = list[float](), 0.0
    for size, each in zip(tensor_sizes, profile.tensor_backward_seconds, strict=True):
        passed += each
        if size:
            seconds.append(passed)
            passed = 0.0
    seconds[-1] += passed
    return replace(profile, tensor_backward_seconds=tuple(seconds)), sizes


def cut(plan: Plan, tensor_sizes: Sequence[int]) -> Plan:
    """Return the plan with the cuts that its fusion planner makes for tensors of these sizes."""
    return replace(plan, fusion=plan_of(plan.fusion.planner, tensor_sizes))
