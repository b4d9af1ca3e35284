"""The lines of a run's files as records (``docs/reference/run-directory.md`` describes each field).

A single process exchanges nothing, and its lines say nothing about an exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trimtab.run_files.fields import figure, flag, mapping, mappings, number, numbers, text, whole

#: Fields of an evaluation that are no metrics: a script has no such metric.
OF_EVERY_EVALUATION = frozenset({"event", "step", "time"})
#: The plan of a single process.
ALONE = "no exchange"

Trigger = Literal["warm-up", "network", "gain", "trials", "measured", "guard", "profile", "progress", "experiment"]
"""The cause of a decision: the warm-up has ended; the network or the gain has changed; trials have run; the last
change made steps longer instead of shorter; a guard's hold has ended; the first profile has come, where there are
buffers or schedules to choose; the job's own loss has shown that steps bring more or less than the law of relative
steps says, or an experiment is over; one begins, to learn what steps of another plan bring."""


@dataclass(frozen=True)
class Step:
    """One training step, as rank 0 saw it. Times in seconds; ``time`` counts from the start of the schedule."""

    step: int
    time: float
    loss: float | None
    step_seconds: float
    compute_seconds: float
    """The part of the step that was not spent waiting for the exchange."""
    compress_seconds: float
    """Selecting and packing; runs beside backward, so it is no part of the step by itself."""
    collective_seconds: float
    """Sending and waiting for others; runs beside backward too."""
    num_bytes: int
    """Sent by rank 0 in this step."""
    plan: str
    plan_version: int
    gain: float | None
    latency: float | None
    """Measured by the monitor: one way, seconds."""
    bandwidth: float | None
    """Measured by the monitor: bytes a second."""
    network_is_stale: bool
    """True if the monitor marked one of the two as stale."""
    trial: bool
    last_rank: int | None = None
    """The rank that came last to the exchange of the step before."""
    late_seconds: float | None = None
    """Seconds by which it came after the middle one of the ranks."""
    forward_seconds: float = 0.0
    """Part of `compute_seconds`: from the end of the step before until backward began."""
    backward_seconds: float = 0.0
    """Likewise: backward, with what it hands to the exchange."""
    optimizer_seconds: float = 0.0
    """Likewise: the optimizer's step."""
    achieved_ratio: float | None = None
    """The share of elements that rank 0 put on the wire; None where the step sent none."""
    residual_norm: float | None = None
    """Norm of what the step's exchanges left as residual on rank 0."""
    finite: bool = True
    """False: something was not finite, and all ranks dropped the step."""
    dropped_by: str = ""
    """The ranks whose gradients were not finite, and their parameters; empty where all were."""

    @property
    def was_dropped(self) -> bool:
        """True if all ranks, or in a round of local steps rank 0 alone, left the step out."""
        return not self.finite or bool(self.dropped_by)

    @property
    def exposed_seconds(self) -> float:
        """The part of the step that was spent waiting for the exchange."""
        return max(0.0, self.step_seconds - self.compute_seconds)

    @property
    def other_seconds(self) -> float:
        """The rest of `compute_seconds`; all of it where nobody told more."""
        return max(0.0, self.compute_seconds - self.forward_seconds - self.backward_seconds - self.optimizer_seconds)

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Step:
        """Parse a step line of ``metrics.jsonl``."""
        step_seconds = number(line, "step_seconds")
        return cls(
            step=whole(line, "step"),
            time=number(line, "time"),
            loss=figure(line, "loss"),
            step_seconds=step_seconds,
            compute_seconds=number(line, "compute_seconds", step_seconds),
            compress_seconds=number(line, "compress_seconds", 0.0),
            collective_seconds=number(line, "collective_seconds", 0.0),
            num_bytes=whole(line, "bytes", 0),
            plan=text(line, "plan", ALONE),
            plan_version=whole(line, "plan_version", 0),
            gain=figure(line, "gain"),
            latency=figure(line, "latency"),
            bandwidth=figure(line, "bandwidth"),
            network_is_stale=bool(line.get("network_stale", False)),
            trial=bool(line.get("trial", False)),
            last_rank=None if line.get("last_rank") is None else whole(line, "last_rank"),
            late_seconds=figure(line, "late_seconds"),
            forward_seconds=number(line, "forward_seconds", 0.0),
            backward_seconds=number(line, "backward_seconds", 0.0),
            optimizer_seconds=number(line, "optimizer_seconds", 0.0),
            achieved_ratio=figure(line, "achieved_ratio"),
            residual_norm=figure(line, "residual_norm"),
            finite=flag(line, "finite", True),
            dropped_by=text(line, "dropped_by", ""),
        )


@dataclass(frozen=True)
class RoundEnd:
    """An exchange that ended a round of local steps early, after the last step of a loop, as rank 0 saw it."""

    step: int
    """The last step before it."""
    time: float
    wait_seconds: float
    compress_seconds: float
    collective_seconds: float
    num_bytes: int
    num_messages: int

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> RoundEnd:
        """Parse a line of ``metrics.jsonl`` about the end of a round."""
        return cls(
            step=whole(line, "step"),
            time=number(line, "time"),
            wait_seconds=number(line, "wait_seconds"),
            compress_seconds=number(line, "compress_seconds"),
            collective_seconds=number(line, "collective_seconds"),
            num_bytes=whole(line, "bytes"),
            num_messages=whole(line, "messages"),
        )


@dataclass(frozen=True)
class LeftOutSteps:
    """Local steps that other ranks than 0 left out, each by itself, since a gradient of theirs was not finite."""

    step: int
    """The last step before it was told."""
    num: int
    by: str
    """The ranks, and parameters of each."""

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> LeftOutSteps:
        """Parse a line of ``metrics.jsonl`` about steps that are left out."""
        return cls(whole(line, "step"), whole(line, "steps"), text(line, "by"))


@dataclass(frozen=True)
class Evaluation:
    """A report of the user's on the model at one time: accuracy and whatever else."""

    step: int
    time: float
    values: dict[str, float]

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Evaluation:
        """Parse an evaluation line of ``metrics.jsonl``."""
        values = {name: value for name, value in numbers(line).items() if name not in OF_EVERY_EVALUATION}
        return cls(whole(line, "step"), number(line, "time"), values)


@dataclass(frozen=True)
class NetworkNote:
    """The network ceased to be measured, or was measured again."""

    time: float
    """Seconds from the start of the schedule."""
    problem: str
    """The reason why nothing is measured; empty: measured again."""

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> NetworkNote:
        """Parse a line of ``decisions.jsonl`` about the network."""
        return cls(number(line, "time"), text(line, "problem"))


@dataclass(frozen=True)
class DecisionLine:
    """One decision of the controller, and what was measured of it later (None until then)."""

    id: int
    step: int
    time: float
    trigger: str
    changed: bool
    reason: str
    previous: str
    adopted: str
    predicted_previous_seconds: float | None
    predicted_seconds: float | None
    inputs: dict[str, float]
    """The controller's inputs, by name; values that were not finite are left out."""
    pareto: list[dict[str, Any]]
    measured_previous_seconds: float | None
    measured_seconds: float | None
    solving_seconds: float
    """Processor time that deciding took."""

    @classmethod
    def from_json(cls, line: dict[str, Any], measured: dict[str, Any]) -> DecisionLine:
        """Parse a decision line of ``decisions.jsonl``, and the line with what was ``measured`` of it, or {}."""
        return cls(
            id=whole(line, "id"),
            step=whole(line, "step"),
            time=number(line, "time"),
            trigger=text(line, "trigger"),
            changed=bool(line["changed"]),
            reason=text(line, "reason"),
            previous=text(mapping(line, "previous"), "name"),
            adopted=text(mapping(line, "adopted"), "name"),
            predicted_previous_seconds=figure(line, "predicted_previous_seconds"),
            predicted_seconds=figure(line, "predicted_seconds"),
            inputs=numbers(mapping(line, "inputs")),
            pareto=[_pareto_point(each) for each in mappings(line, "pareto")],
            measured_previous_seconds=figure(measured, "measured_previous_step_seconds"),
            measured_seconds=figure(measured, "measured_step_seconds"),
            solving_seconds=number(line, "solving_seconds", 0.0),  # earlier versions did not write it
        )


@dataclass(frozen=True)
class Phase:
    """One phase of the emulated network: what was set, not what was measured."""

    time: float
    latency: float
    bandwidth: float

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Phase:
        """Parse a line of ``network.jsonl``."""
        return cls(number(line, "time"), number(line, "latency"), number(line, "bandwidth"))


@dataclass(frozen=True)
class Link:
    """One directed link as a monitor measured it last; None: not measured."""

    source: int
    target: int
    latency: float | None
    bandwidth: float | None
    latency_stale: bool = False
    bandwidth_stale: bool = False
    """Measured before the network changed, or long ago."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Link:
        """Parse an entry of ``links.json``."""
        source, target = whole(data, "source"), whole(data, "target")
        return cls(
            source,
            target,
            figure(data, "latency"),
            figure(data, "bandwidth"),
            latency_stale=flag(data, "latency_stale", False),  # earlier versions did not write it
            bandwidth_stale=flag(data, "bandwidth_stale", False),
        )


def _pareto_point(data: dict[str, Any]) -> dict[str, Any]:
    """Parse a plan of the Pareto front: its name, and what was predicted of it."""
    predicted = {name: number(data, name) for name in ("compress_seconds", "sync_seconds", "gain", "step_seconds")}
    return {"plan": text(data, "plan"), **predicted}
