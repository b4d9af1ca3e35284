"""Plans as they are named on the command line, and the TrainingJob that trains under one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_api.errors import UserError

from trimtab.plan import Plan

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

ADAPTIVE = "adaptive"

#: The static grid that adaptive is judged against: every ratio with every collective (15 plans).
GRID_RATIOS = (0.1, 0.033, 0.011, 0.004, 0.001)
GRID_COLLECTIVES = ("all-gather", "artopk-star-ring", "artopk-star-tree")
GRID = tuple(f"{ratio:g}/{collective}" for ratio in GRID_RATIOS for collective in GRID_COLLECTIVES)


def parse_plan(text: str, field: str) -> str:
    """The one name of a plan: ``adaptive``, ``dense``, ``0.01/all-gather`` (``static:`` before it may be left out).

    Raises `UserError` naming ``field``.
    """
    name = text.strip().removeprefix("static:")
    if name in (ADAPTIVE, "dense"):
        return name
    try:
        return Plan.parse(name).name
    except UserError as error:
        raise UserError(
            f"{error.remedy} (plans are adaptive, dense, or RATIO/COLLECTIVE)", field=field, value=text
        ) from None


def parse_plans(text: str, field: str) -> list[str]:
    """Names of a comma-separated list, ``grid`` spelled out; a plan that is named may be one of the grid's as well.

    Raises `UserError` naming ``field``, also where a plan is named twice.
    """
    parts = ["grid" if part.strip() == "grid" else parse_plan(part, field) for part in text.split(",")]
    for index, part in enumerate(parts):
        if part in parts[:index]:
            raise UserError("is named twice; leave out one", field=field, value=part)
    return list(dict.fromkeys(name for part in parts for name in (GRID if part == "grid" else [part])))


def plan_of(job: TrainingJob) -> str:
    """The plan that a job trains under, by the same names."""
    communication = job.spec.communication
    if communication.policy == "Adaptive":
        return ADAPTIVE
    assert communication.plan is not None, "a static policy has a plan"
    return parse_plan(communication.plan, "spec.communication.plan")


def with_plan(job: TrainingJob, plan: str) -> TrainingJob:
    """The same job under another plan, by its name."""
    policy = {"policy": "Adaptive", "plan": None} if plan == ADAPTIVE else {"policy": "Static", "plan": plan}
    communication = job.spec.communication.model_copy(update=policy)
    return job.model_copy(update={"spec": job.spec.model_copy(update={"communication": communication})})
