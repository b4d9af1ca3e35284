"""The controller's choices: what a job's ``communication`` allows, and which of these a script can follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trimtab_api.catalogue import DENSE_COLLECTIVES, choices, collectives, planners, schedules, sources, wires
from trimtab_api.catalogue.sources import OUTER_MOMENTUM, OUTER_RATE
from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.communication import Communication, LocalSteps

from trimtab.control.types import ControllerSettings, OptimizerFamily
from trimtab.plan.constraints import Script, choosable_schedules, choosable_sources
from trimtab.plan.plan import FusionPlan, Plan


def controller_settings(job: TrainingJob, optimizer: OptimizerFamily) -> ControllerSettings:
    """Translate a TrainingJob's ``communication`` into the controller's terms."""
    wanted = job.spec.communication
    gradient: tuple[str, ...] = (sources.default,)
    chosen, delays_updates = wanted.local_steps, any(schedules[name].delays_updates for name in wanted.schedules)
    size, selection = wanted.fusion.buffer_size, wanted.fusion.selection
    planner = "single" if size == "single" else f"fixed:bytes={size:.0f}"
    fusion = planners.normalize(f"{planner}:selection={selection}")
    fusions = dict.fromkeys((fusion, *wanted.fusion.alternatives))  # each once
    return ControllerSettings(
        policy="adaptive" if wanted.policy == "Adaptive" else "static",
        static_plan=None
        if wanted.plan is None
        else Plan.parse(wanted.plan, FusionPlan(planner=fusion), sparsifier=wanted.sparsifier),
        min_ratio=wanted.ratio.min,
        max_ratio=wanted.ratio.max,
        candidate_ratios=wanted.ratio.tried(),
        collectives=choices(wanted.collectives, job.spec.workers, job.spec.processes_per_worker),
        fusions=tuple(fusions),
        sparsifiers=tuple(dict.fromkeys((wanted.sparsifier, *wanted.sparsifier_alternatives))),
        schedules=wanted.schedules,
        sources=gradient if chosen is None else sources_of(chosen),
        sources_in_batches=sources_by_default(optimizer) if chosen is None and not delays_updates else (),
        wires=_wires_of(wanted),
        dense_collectives=choices(DENSE_COLLECTIVES, job.spec.workers, job.spec.processes_per_worker),
        dense_wires=_dense_wires_of(wanted),
        network_change=wanted.triggers.network,
        gain_change=wanted.triggers.gain,
        trial_iterations=wanted.trials.iterations,
        exploration_share=wanted.trials.budget,
        speed_weight=wanted.speed_weight,
        warmup_steps=wanted.warmup_steps,
    )


def _wires_of(wanted: Communication) -> tuple[str, ...]:
    """Return the formats in which values may cross: as the job says, or the defaults that every collective sends."""
    if wanted.value_formats is not None:
        return wanted.value_formats
    sent = [collectives[name].wires for name in wanted.collectives]
    return tuple(row.name for row in wires.rows() if row.is_default and all(row.name in each for each in sent))


def _dense_wires_of(wanted: Communication) -> tuple[str, ...]:
    """Return the formats for whole gradients beside float32: all that may round them, or those that the job names."""
    named = wanted.value_formats
    return tuple(row.name for row in wires.rows() if row.rounds_dense and (named is None or row.name in named))


def fit_to_script(asked: ControllerSettings, script: Script, say: Callable[[str], None]) -> ControllerSettings:
    """Return the settings without what the script cannot follow; a hook sees no loop that could try plans.

    Args:
        asked: The settings that the job asks for.
        script: What the script is.
        say: Takes a line for each field of the job that is not heeded.
    """
    kept = replace(
        asked,
        sources=choosable_sources(asked.sources, script) or (sources.default,),
        sources_in_batches=choosable_sources(asked.sources_in_batches, script),
        schedules=choosable_schedules(asked.schedules, script) or (schedules.default,),
        exploration_share=0.0 if script.is_hook else asked.exploration_share,
    )
    why = f"by {script.describe()}"
    if names := [name for name in asked.schedules if name not in kept.schedules]:
        say(f"spec.communication.schedules: {', '.join(names)} cannot be followed {why}, and will not be chosen")
    if any(source not in kept.sources for source in asked.sources):
        say(f"spec.communication.localSteps: no round can be followed {why}, and none will be chosen")
    return kept


def sources_by_default(optimizer: OptimizerFamily, most: int = LocalSteps().max) -> tuple[str, ...]:
    """Return the sources beside gradients for loops over ``session.batches`` of a job that says nothing of local steps.

    What local steps cost was measured of the kin of Adam and of SGD; of an optimizer that is neither nobody knows.
    """
    return () if optimizer.kind == "unknown" else sources_between(1, most)


def sources_of(wanted: LocalSteps) -> tuple[str, ...]:
    """Return the sources that a job permits, updates with its outer step."""
    outer = f":{OUTER_RATE.name}={wanted.outer_rate}:{OUTER_MOMENTUM.name}={wanted.outer_momentum}"
    between = sources_between(wanted.min, wanted.max)
    return tuple(each if each == sources.default else sources.normalize(each + outer) for each in between)


def sources_between(fewest: int, most: int) -> tuple[str, ...]:
    """Return the sources with ``fewest`` to ``most`` local steps: both ends, and powers of 4 between."""
    steps = {fewest, most, *(4**power for power in range(10))}
    return tuple(f"update:steps={n}" if n else sources.default for n in sorted(steps) if fewest <= n <= most)
