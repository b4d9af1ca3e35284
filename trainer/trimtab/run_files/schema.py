"""The records in a run's files beside those of `steps` (``docs/reference/run-directory.md`` describes each field)."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import field
from msgspec.structs import replace

from trimtab.run_files.json_files import Count, Measure, Record, finite_numbers

#: States of a run that did what was asked of it.
SUCCESS_STATES = ("succeeded", "target")
#: What people are told of a run that is not valid.
NOT_VALID = "the emulator could not keep up with the network; the times of this run are not valid"

Trigger = Literal["warm-up", "network", "gain", "trials", "measured", "guard", "profile", "progress", "experiment"]
"""The cause of a decision: the warm-up has ended; the network or the gain has changed; trials have run; the last
change made steps longer instead of shorter; a guard's hold has ended; the first profile has come, where there are
buffers or schedules to choose; the job's own loss has shown that steps bring more or less than the law of relative
steps says, or an experiment is over; one begins, to learn what steps of another plan bring."""


class NetworkNote(Record, frozen=True, gc=False):
    """The network ceased to be measured, or was measured again."""

    time: Measure
    """Seconds from the start of the schedule."""
    problem: str
    """The reason why nothing is measured; empty: measured again."""


class DataNote(Record, frozen=True, gc=False):
    """All ranks train on the same data, which ``problem`` says in a sentence."""

    problem: str


class FusionPlan(Record, frozen=True):
    """The element at which each buffer begins."""

    cuts: tuple[int, ...] = ()


class DecidedPlan(Record, frozen=True):
    """The plan before or after a decision, as far as readers need it."""

    name: str
    version: int = 0
    fusion: FusionPlan = FusionPlan()

    def __str__(self) -> str:
        return self.name


class DecisionLine(Record, frozen=True):
    """One decision of the controller."""

    id: Count
    step: Count
    time: Measure
    trigger: str
    changed: bool
    reason: str
    previous: DecidedPlan
    adopted: DecidedPlan
    inputs: dict[str, Any]
    predicted_previous_seconds: float | None = None
    predicted_seconds: float | None = None
    solving_seconds: Measure = 0.0
    """Processor time that deciding took."""

    @property
    def known_inputs(self) -> dict[str, float]:
        """The controller's inputs, by name; those that are no finite numbers are left out."""
        return finite_numbers(self.inputs)


class MeasuredLine(Record, frozen=True, gc=False):
    """What was measured of a decision, some steps later."""

    id: Count
    previous_seconds: float | None = field(default=None, name="measured_previous_step_seconds")
    seconds: float | None = field(default=None, name="measured_step_seconds")


DecisionRecord: TypeAlias = DecisionLine | MeasuredLine | NetworkNote | DataNote
_KINDS: dict[str, type[DecisionRecord]] = {
    "decision": DecisionLine,
    "measured": MeasuredLine,
    "network": NetworkNote,
    "data": DataNote,
}


def decision_kind(line: dict[str, Any]) -> type[DecisionRecord] | None:
    """Return what a line of ``decisions.jsonl`` is; None for profiles, and what a later version may have added."""
    return _KINDS.get(str(line.get("record")))


class ParetoPoint(Record, frozen=True, gc=False):
    """A plan of a decision's Pareto front: its name, and what was predicted of it."""

    plan: str
    compress_seconds: Measure
    sync_seconds: Measure
    gain: Measure
    step_seconds: Measure


class ReportedDecision(DecisionLine, frozen=True, kw_only=True):
    """A decision with all that a report shows of it: its Pareto front, and what was measured later."""

    pareto: list[ParetoPoint]
    measured_previous_seconds: float | None = None
    measured_seconds: float | None = None

    def with_measured(self, line: MeasuredLine | None) -> ReportedDecision:
        """Return the same decision with what was measured of it, if anything was."""
        if line is None:
            return self
        return replace(self, measured_previous_seconds=line.previous_seconds, measured_seconds=line.seconds)


class Span(Record, frozen=True, gc=False):
    """Something that went on in a row of a traced step, or is predicted to; a prediction names no phase."""

    row: str
    begin: Measure
    end: Measure
    phase: str = ""
    name: str = ""


class TraceLine(Record, frozen=True):
    """A profiled step, moment by moment."""

    step: Count
    plan: str
    spans: list[Span]


class PredictedStep(Record, frozen=True):
    """What the model of a step makes of a plan."""

    step_seconds: Measure
    spans: list[Span]


class ProfileLine(Record, frozen=True):
    """What profiled steps measured as a whole, of which only the prediction is read."""

    plan: str
    predicted: PredictedStep


class Phase(Record, frozen=True, gc=False):
    """One phase of the emulated network: what was set, not what was measured."""

    time: Measure
    latency: Measure
    bandwidth: Measure


class Link(Record, frozen=True, gc=False):
    """One directed link as a monitor measured it last; None: not measured."""

    source: Count
    target: Count
    latency: float | None = None
    bandwidth: float | None = None
    latency_stale: bool = False
    bandwidth_stale: bool = False
    """Measured before the network changed, or long ago."""


class Links(Record, frozen=True):
    """Every link of the network: ``links.json``."""

    links: list[Link]


class Target(Record, frozen=True, gc=False):
    """The value of a reported metric at which a model counts as trained.

    A metric whose name ends in ``loss`` must fall to the value; any other must rise to it.
    """

    metric: str
    value: Measure

    def reached_by(self, values: dict[str, float]) -> bool:
        """Return whether one evaluation reaches the target; one that does not report the metric never does."""
        if self.metric not in values:
            return False
        achieved = values[self.metric]
        return achieved <= self.value if self.metric.endswith("loss") else achieved >= self.value


class JobName(Record, frozen=True, gc=False):
    """A job's ``metadata``."""

    name: str


class JobSpec(Record, frozen=True):
    """A job's ``spec``."""

    workers: Count
    processes_per_worker: Count = field(default=1, name="processesPerWorker")
    target: Target | None = None
    seed: int = 0

    @property
    def num_ranks(self) -> int:
        """All processes that train."""
        return self.workers * self.processes_per_worker


class JobFacts(Record, frozen=True):
    """The fields of ``job.json`` that the report shows. No more is checked: an older version had other rules."""

    metadata: JobName
    spec: JobSpec


class RunResult(Record, frozen=True):
    """The end of a run: ``result.json``."""

    state: str = "unknown"
    """``succeeded``, ``target`` (ended at its target), ``failed``, ``deadline`` or ``interrupted``."""
    message: str = ""
    """The reason for a failure: process, exit code or signal, and the last lines of its log."""
    plan: str = ""
    """The plan of the run: ``adaptive``, ``dense`` or a plan text."""
    emulated: bool = False
    """False on loopback."""
    relay: dict[str, Any] | None = None
    """The report of the emulator's relay on its delays; null on loopback."""
    wall_seconds: Measure = 0.0
    """Seconds of the whole run, with startup and restarts."""
    machine: dict[str, Any] = field(default_factory=dict)
    """Python, torch, trimtab, system, cores and memory in bytes."""
    restarts: Count = 0
    """Number of restarts of all ranks. 0 in a pod, which is one attempt."""
    valid: bool = False
    """False if the relay could not keep up with the network: then the times are wrong."""

    @property
    def is_success(self) -> bool:
        """True if the run did what was asked of it."""
        return self.state in SUCCESS_STATES
