"""A run in a few numbers: ``summary.json`` (``docs/reference/run-directory.md``)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from trimtab_api.errors import UserError
from trimtab_api.trainingjob.rules import unreachable

from trimtab.run_files.reader import Run
from trimtab.run_files.schema import NetworkNote, Target
from trimtab.run_files.steps import DroppedSteps, Step, straggler_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_api.trainingjob import TrainingJob


def target_of(job: TrainingJob, value: float | None = None) -> Target | None:
    """Return the job's target.

    Args:
        job: What was run.
        value: From ``--target``: replaces the job's; without a metric in the job, it is accuracy.

    Raises:
        UserError: The metric cannot have that value.
    """
    named = job.spec.target
    if value is not None:
        target = Target(named.metric if named else "accuracy", value)
        if trouble := unreachable(target.metric, value):
            raise UserError(trouble, field="--target", value=f"{value:g}")
        return target
    return Target(named.metric, named.value) if named else None


@dataclass(frozen=True)
class Summary:
    """One run. Seconds count from the start of the schedule, when every rank was ready."""

    accuracy: float | None
    """Accuracy of the last evaluation, 0 to 1."""
    seconds_to_target: float | None
    """Time of the first evaluation that reached the target."""
    median_step_seconds: float | None
    """Median step time without trials."""
    bytes_sent: int
    """Bytes that rank 0 sent, trials included."""
    plan_changes: int
    """Decisions that changed the plan."""
    exploration_seconds: float
    """Seconds spent in trials, with their snapshots and restores, and in solving."""
    wall_seconds: float
    """Seconds to the last step or evaluation, without startup."""
    valid: bool
    """As in `result.json`."""
    emulated: bool
    """As in `result.json`."""
    state: str
    """As in `result.json`."""
    num_steps: int
    """Steps that trained."""
    straggler: str = ""
    """The rank that kept the others waiting, in a sentence."""
    network_problem: str = ""
    """The longest time without a network measurement, and why."""
    data_problem: str = ""
    """Says that all ranks trained on the same data."""
    dropped: str = ""
    """Dropped steps, with rank and parameter."""
    all_seconds_to_target: tuple[float | None, ...] = ()
    """`seconds_to_target` of each run of the plan, in order; only with `--repeat`."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data; floats are rounded to six digits, and null where not finite."""
        data = asdict(self)
        times = data.pop("all_seconds_to_target")
        if times:
            data["all_seconds_to_target"] = [each if each is None else _tidy(each) for each in times]
        return {name: _tidy(value) if isinstance(value, float) else value for name, value in data.items()}


def _tidy(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def summarise(run: Run, target: Target | None) -> Summary:
    """Return the numbers of one run."""
    reached = [each.time for each in run.evaluations if target is not None and target.reached_by(each.values)]
    training = run.training_steps
    return Summary(
        accuracy=run.evaluations[-1].values.get("accuracy") if run.evaluations else None,
        seconds_to_target=reached[0] if reached else None,
        median_step_seconds=median(step.step_seconds for step in training) if training else None,
        bytes_sent=sum(step.num_bytes for step in run.steps) + sum(ended.num_bytes for ended in run.round_ends),
        plan_changes=sum(decision.changed for decision in run.decisions),
        exploration_seconds=trial_seconds(run.steps) + sum(decision.solving_seconds for decision in run.decisions),
        wall_seconds=run.seconds,
        valid=run.result.valid,
        emulated=run.result.emulated,
        state=run.result.state,
        num_steps=len(training),
        straggler=str(straggler_of(training) or ""),
        network_problem=network_problem(run.network_notes),
        data_problem=run.data_problem,
        dropped=str(DroppedSteps(training, run.left_out)),
    )


def network_problem(notes: Sequence[NetworkNote]) -> str:
    """Return the longest time for which the network was not measured, and why; empty where it always was."""
    longest, sentence = 0.0, ""
    for number, note in enumerate(notes, 1):
        end = notes[number].time if number < len(notes) else math.inf
        if note.problem and end - note.time > longest:
            longest = end - note.time
            until = "to the end" if end == math.inf else f"to {end:.0f} s"
            sentence = f"the network was not measured from {note.time:.0f} s {until}: {note.problem}"
    return sentence


def trial_seconds(steps: list[Step]) -> float:
    """Return the seconds of each series of trials, from the end of the step before it to its last step's end."""
    total = 0.0
    previous: Step | None = None
    for step in steps:
        if step.trial:
            total += step.time - previous.time if previous else step.step_seconds
        previous = step
    return total
