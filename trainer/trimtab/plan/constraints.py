"""Plans that cannot be followed, or may not be chosen: one table, by what the script is.

A plan that a job names is refused by it. What an Adaptive policy may choose from is narrowed by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trimtab_api.catalogue import Schedule, SourceOptions, schedules, source_options, sources
from trimtab_api.catalogue.schedules import OVERLAP_IS_STATIC
from trimtab_api.errors import UserError


@dataclass(frozen=True)
class Script:
    """What a script is, as far as it decides which plans can be followed."""

    alternates: bool = False
    """Its optimizers take turns: each step is of one of them."""
    is_manual: bool = False
    """It changes the weights by itself."""
    is_hook: bool = False
    """It trains through a communication hook of DDP's, which sees neither its loop nor its forward passes."""
    is_adaptive: bool = False
    """Its job leaves the plan to an Adaptive policy."""
    momentum: float = 0.0
    """What its optimizer, a `momentum_of`, keeps of the gradients before."""
    momentum_of: str = ""

    def describe(self) -> str:
        """Return the kind that says most of why the script cannot follow a plan."""
        if self.is_hook:
            return "a hook of DDP's"
        return "optimizers that take turns" if self.alternates else "a script that steps by hand"


@dataclass(frozen=True)
class PlanConstraint:
    """One row: scripts of this kind cannot follow such plans."""

    of: Callable[[Script], bool] | None
    """Whether a script is of the kind; None: every script is."""
    excludes: Callable[[Schedule, SourceOptions], bool]
    """Whether a plan of this schedule and source is one of those."""
    field: str
    """The field at fault, which ends in an axis."""
    remedy: str = ""
    """The sentence for the user; empty: such plans are followed where a job names one, and never chosen."""

    def error(self, schedule: str, source: str, script: Script = Script(), *, field: str = "") -> UserError:
        """Return the error that says so; ``field`` replaces the row's."""
        remedy = self.remedy.format(
            schedule=schedule,
            awaiting=" or ".join(row.name for row in schedules.rows() if row.awaits_backward),
            optimizer=script.momentum_of,
            momentum=f"{script.momentum:g}",
        )
        return UserError(remedy, field=field or self.field, value=source if self.field.endswith("source") else schedule)


#: A schedule that delays updates, which takes an optimizer that the engine can step in parts.
WAITING_GRADIENTS = PlanConstraint(
    lambda script: script.alternates or script.is_manual or script.is_hook,
    lambda schedule, source: schedule.delays_updates,
    "plan.schedule",
    "delays gradients, which is not supported with alternating optimizers, manual updates or a DDP hook; choose"
    " wait-free, after-backward or priority",
)

#: The first row that applies gives the reason.
PLAN_CONSTRAINTS = (
    PlanConstraint(
        None,
        lambda schedule, source: source.clip > 0 and not schedule.awaits_backward,
        "source",
        "clip needs the whole gradient before any of it is sent; add schedule={awaiting}, or leave clip out",
    ),
    PlanConstraint(
        None,
        lambda schedule, source: source.momentum > 0 and schedule.delays_updates,
        "source",
        "momentum corrects one gradient a step, and {schedule} sends several at once; leave one of them out",
    ),
    PlanConstraint(
        None,
        lambda schedule, source: schedule.overlaps_rounds and not source.local_steps,
        "schedule",
        "sends the updates of one round of local steps under the next; add source=update:steps=H",
    ),
    PlanConstraint(
        None,
        lambda schedule, source: schedule.delays_updates and schedule.is_planned and source.local_steps > 0,
        "schedule",
        "merges gradients of several steps, and source=update sends none; leave one of them out",
    ),
    PlanConstraint(
        lambda script: script.is_adaptive,
        lambda schedule, source: source.momentum > 0,
        "source",
        "an Adaptive policy falls back to dense without it, and the optimizer has no momentum either;"
        " leave momentum to the optimizer, or write a Static plan",
    ),
    PlanConstraint(
        lambda script: script.is_adaptive,
        lambda schedule, source: schedule.overlaps_rounds,
        "schedule",
        OVERLAP_IS_STATIC,
    ),
    PlanConstraint(
        lambda script: script.is_adaptive,
        lambda schedule, source: schedule.delays_updates and source.local_steps > 0,
        "schedule",
        "merges gradients of several steps, and sources of local steps send none; leave one of them out",
    ),
    PlanConstraint(
        lambda script: script.momentum > 0,
        lambda schedule, source: source.momentum > 0,
        "source",
        "corrects the momentum of an optimizer that has none of its own, and {optimizer} has {momentum}; give SGD"
        " momentum=0, or leave momentum out of the plan",
    ),
    PlanConstraint(
        lambda script: script.is_hook,
        lambda schedule, source: source.local_steps > 0,
        "plan.source",
        "makes rounds of local steps, and a hook of DDP's is not told of steps; call trimtab.attach(ddp_model,"
        " optimizer) in place of the hook, or name a plan of source=gradient",
    ),
    PlanConstraint(
        lambda script: script.alternates,
        lambda schedule, source: source.local_steps > 0,
        "plan.source",
        "makes rounds of several steps, and optimizers that take turns have no round in common; name a plan of"
        " source=gradient",
    ),
    WAITING_GRADIENTS,
    PlanConstraint(lambda script: script.is_manual, lambda schedule, source: source.local_steps > 0, "plan.source"),
    PlanConstraint(
        lambda script: script.is_hook,
        lambda schedule, source: schedule.name != schedules.default,
        "plan.schedule",
    ),
)


def check_schemes(schedule: str, source: str, script: Script = Script()) -> None:
    """Raise `UserError` if a plan of these schemes cannot be followed: by no script, or not by this one."""
    row, options = schedules[schedule], source_options(source)
    for each in PLAN_CONSTRAINTS:
        if each.remedy and (each.of is None or each.of(script)) and each.excludes(row, options):
            raise each.error(schedule, source, script)


def excluded(schedule: str, source: str, script: Script) -> PlanConstraint | None:
    """Return the row by which nothing of these schemes is chosen for a script of its kind; None if it may be."""
    row, options = schedules[schedule], source_options(source)
    of_kind = (each for each in PLAN_CONSTRAINTS if each.of is not None and each.of(script))
    return next((each for each in of_kind if each.excludes(row, options)), None)


def choosable_schedules(names: Iterable[str], script: Script) -> tuple[str, ...]:
    """Return the schedules that may be chosen for the script."""
    return tuple(name for name in names if excluded(name, sources.default, script) is None)


def choosable_sources(names: Iterable[str], script: Script) -> tuple[str, ...]:
    """Return the sources that may be chosen for the script."""
    return tuple(name for name in names if excluded(schedules.default, name, script) is None)
