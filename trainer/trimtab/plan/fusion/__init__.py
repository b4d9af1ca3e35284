"""Which gradient elements share a buffer? One file per planner: from sizes, profile and costs to cuts."""

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
    """The fusion plan that a planner makes for tensors of these sizes (elements, in backward order).

    ``profile`` and ``costs`` are what is known of them by now, if anything. Raises `UserError` where the planner or an
    option of it is not known, a cut lies beyond the last element, or there are more buffers than there may be.
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
    """What planners are told: an empty tensor has no buffer, for two cuts at one element would leave one without any.

    What its gradient takes passes before the next tensor's is complete, and after the last one's counts to that.
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
    """The plan with the cuts that its fusion planner makes for tensors of these sizes."""
    return replace(plan, fusion=plan_of(plan.fusion.planner, tensor_sizes))
