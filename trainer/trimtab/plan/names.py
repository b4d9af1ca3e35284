"""Plans by their names on the command line, and the TrainingJob that trains under one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_api.catalogue import (
    DENSE,
    collectives,
    parse_plan_text,
    rank_count_error,
    reads_no_sparsifier,
    sparsifiers,
)
from trimtab_api.errors import UserError

from trimtab.plan.plan import Plan

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

ADAPTIVE = "adaptive"
#: Arms of a comparison that Trimtab does not exchange for: torch's own DistributedDataParallel, with a hook of torch's.
DDP_HOOKS = {"ddp-fp16": "fp16", "ddp-powersgd": "powersgd"}
#: Names such a hook to a trainer; `trimtab.session.ddp_baseline` reads it.
DDP_HOOK_VARIABLE = "TRIMTAB_DDP_HOOK"
GRID_NAME = "grid"

#: The static grid that adaptive is judged against: gradients at every ratio by every collective (15 plans), ...
GRID_RATIOS = (0.1, 0.033, 0.011, 0.004, 0.001)
GRID_COLLECTIVES = tuple(row.name for row in collectives.rows() if row.is_representative)
#: ... and updates of so many local steps, whole and of two ratios (9 plans).
GRID_LOCAL_STEPS = (1, 4, 16)
GRID_UPDATES = (DENSE, "0.1/all-gather", "0.01/all-gather")
GRID = (
    *(f"{ratio:g}/{collective}" for ratio in GRID_RATIOS for collective in GRID_COLLECTIVES),
    *(
        parse_plan_text(f"{sent}/source=update:steps={steps}").text
        for steps in GRID_LOCAL_STEPS
        for sent in GRID_UPDATES
    ),
)
#: The meaning of `grid`, for a flag's help.
GRID_MEANS = (
    f"{len(GRID)} static plans (each of {', '.join(GRID_COLLECTIVES)} at {', '.join(f'{r:g}' for r in GRID_RATIOS)}, "
    f"and updates of {', '.join(map(str, GRID_LOCAL_STEPS))} local steps by {', '.join(GRID_UPDATES)})"
)


def parse_plan(text: str, field: str) -> str:
    """Return the normalized name of a plan: ``adaptive``, ``dense``, ``0.01/all-gather``; ``static:`` is dropped.

    Raises:
        UserError: The text names no plan; the error names ``field``.
    """
    if text.strip() == ADAPTIVE:
        return ADAPTIVE
    return _parse_static(text, field, f"{ADAPTIVE}, dense or RATIO/COLLECTIVE such as 0.01/all-gather")


def parse_plans(text: str, field: str) -> list[str]:
    """Return the names of a comma-separated list, with ``grid`` spelled out; `DDP_HOOKS` are allowed.

    A plan that is named may be one of the grid's as well.

    Raises:
        UserError: A part names no plan, or a plan is named twice; the error names ``field``.
    """
    known = (
        f"{ADAPTIVE}, dense, RATIO/COLLECTIVE such as 0.01/all-gather, {', '.join(DDP_HOOKS)}, or {GRID_NAME}, "
        "with commas between them"
    )
    names: list[str] = []
    for part in text.split(","):
        name = part.strip()
        if name not in (ADAPTIVE, GRID_NAME, *DDP_HOOKS):
            name = _parse_static(part, field, known)
        if name in names:
            twice = "is named twice" if part.strip() == name else f"is {name}, which is named already"
            raise UserError(f"{twice}; leave out one", field=field, value=part.strip())
        names.append(name)
    return list(dict.fromkeys(plan for name in names for plan in (GRID if name == GRID_NAME else [name])))


def _parse_static(text: str, field: str, known: str) -> str:
    """Return the normalized text of a static plan; ``known`` tells what else could be written.

    It names each axis that ``text`` names, even the default: a job's fields decide where the text is silent.
    """
    name = text.strip().removeprefix("static:")
    if name != "dense" and not any(mark in name for mark in ("/", "dense-")):
        remedy = f"write {known}"
        raise UserError(remedy if text.strip() else f"is empty; {remedy}", field=field, value=text.strip())
    try:
        Plan.parse(name)  # some axes do not go together
        told = parse_plan_text(name).text
    except UserError as error:
        remedy = error.remedy if error.field == "plan" else str(error)
        raise UserError(remedy, field=field, value=text.strip()) from None
    return "dense" if told == DENSE else told


def check_runs(job: TrainingJob, name: str, field: str) -> None:
    """Raise `UserError` naming ``field`` if a plan of this name does not run on the job's ranks."""
    if name in (ADAPTIVE, *DDP_HOOKS):
        return
    plan, told = Plan.parse(name), job.spec.communication.sparsifier
    if plan.row.has_builtin_sparsifier and told != sparsifiers.default:
        raise UserError(f"{reads_no_sparsifier(plan.collective)} (the job says {told})", field=field, value=name)
    reason = rank_count_error(plan.collective, job.spec.num_ranks, [job.spec.processes_per_worker])
    if reason is not None:
        raise UserError(f"{reason} (this job has {job.spec.num_ranks} ranks)", field=field, value=name)


def plan_of(job: TrainingJob) -> str:
    """Return the name of the plan that a job trains under."""
    communication = job.spec.communication
    if communication.policy == "Adaptive":
        return ADAPTIVE
    assert communication.plan is not None, "a static policy has a plan"
    return parse_plan(communication.plan, "spec.communication.plan")


def without_checkpoints(job: TrainingJob) -> TrainingJob:
    """Return the job without checkpoints: a run of a comparison begins where the others begin."""
    return job.model_copy(update={"spec": job.spec.model_copy(update={"checkpoint": None})})


def with_seed(job: TrainingJob, seed: int) -> TrainingJob:
    """Return the job with another seed of everything random."""
    return job.model_copy(update={"spec": job.spec.model_copy(update={"seed": seed % 2**31})})


def with_plan(job: TrainingJob, plan: str) -> TrainingJob:
    """Return the job under another plan, by its name, or by torch's DDP with one of `DDP_HOOKS`."""
    if plan in DDP_HOOKS:
        return _with_variable(with_plan(job, "dense"), DDP_HOOK_VARIABLE, DDP_HOOKS[plan])
    policy = {"policy": "Adaptive", "plan": None} if plan == ADAPTIVE else {"policy": "Static", "plan": plan}
    communication = job.spec.communication.model_copy(update=policy)
    return job.model_copy(update={"spec": job.spec.model_copy(update={"communication": communication})})


def _with_variable(job: TrainingJob, name: str, value: str) -> TrainingJob:
    """Return the job with one more environment variable for its trainers."""
    pod = job.spec.template["spec"]
    containers = [
        container | {"env": [*(container.get("env") or []), {"name": name, "value": value}]}
        if container is job.spec.trainer
        else container
        for container in pod["containers"]
    ]
    template = job.spec.template | {"spec": pod | {"containers": containers}}
    return job.model_copy(update={"spec": job.spec.model_copy(update={"template": template})})
