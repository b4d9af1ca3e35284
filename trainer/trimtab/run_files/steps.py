"""The lines of ``metrics.jsonl``, and what people must hear of its steps: that some were dropped, that a rank is late.

A single process exchanges nothing, and its lines say nothing about an exchange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self, TypeAlias

import msgspec
from msgspec import field

from trimtab.run_files.json_files import Count, Measure, Record, finite_numbers

#: Fields of an evaluation that are no metrics: a script has no such metric.
OF_EVERY_EVALUATION = frozenset({"event", "step", "time"})
#: The plan of a single process.
ALONE = "no exchange"
#: A straggler comes last in at least this share of the steps ...
_SHARE_OF_STEPS = 0.8
#: ... and later than the middle rank by at least this share of a step, in the middle one of these.
_SHARE_OF_STEP = 0.1
#: Fewer steps tell nothing.
_FEWEST_STEPS = 10


class Step(Record, frozen=True, gc=False):
    """One training step, as rank 0 saw it. Times in seconds; ``time`` counts from the start of the schedule."""

    step: Count
    """Number of the step, from 0; in a trial, that of the step at which the trial began."""
    time: Measure
    """Seconds from time zero to the end of the step."""
    step_seconds: Measure
    """Wall time of the step."""
    loss: float | None = None
    """The loss that the script passed to ``session.step(loss)``."""
    compute_seconds: Measure = -1.0
    """Part of `step_seconds` that was not spent waiting for an exchange."""
    compress_seconds: Measure = 0.0
    """Selecting and packing. Runs beside backward; no part of `step_seconds`."""
    collective_seconds: Measure = 0.0
    """Sending, and waiting for other ranks. Also beside backward."""
    num_bytes: Count = field(default=0, name="bytes")
    """Bytes that rank 0 sent in this step."""
    num_messages: Count = field(default=0, name="messages")
    """Messages on the longest chain."""
    plan: str = ALONE
    """The plan in force, such as ``0.01/all-gather``."""
    plan_version: Count = 0
    """Version of the plan; grows with each change."""
    gain: float | None = None
    """Gain of the previous step over all ranks; 1 under a dense plan, null if the plan has just changed."""
    latency: float | None = None
    """Measured latency of the slowest link, one way."""
    bandwidth: float | None = None
    """Measured bandwidth of the slowest link."""
    network_is_stale: bool | None = field(default=False, name="network_stale")
    """True if the monitor marked one of the two as stale; null without a monitor."""
    trial: bool = False
    """True if the step belongs to a trial and was undone."""
    last_rank: Count | None = None
    """The last rank to reach the previous step's exchange."""
    late_seconds: float | None = None
    """Its delay behind the median rank."""
    forward_seconds: Measure = 0.0
    """Part of `compute_seconds`: from the end of the previous step to the start of backward."""
    backward_seconds: Measure = 0.0
    """Part of `compute_seconds`: backward, and passing its gradients to the exchange."""
    optimizer_seconds: Measure = 0.0
    """Part of `compute_seconds`: the optimizer's step."""
    achieved_ratio: float | None = None
    """Share of elements that rank 0 sent, of all elements of these exchanges."""
    residual_norm: float | None = None
    """Norm of the residual that the step's exchanges left on rank 0."""
    finite: bool = True
    """False if a gradient was not finite, and all ranks dropped the step."""
    dropped_by: str = ""
    """Ranks and parameters whose gradients were not finite."""

    def __post_init__(self) -> None:
        if self.compute_seconds < 0:
            msgspec.structs.force_setattr(self, "compute_seconds", self.step_seconds)

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


class RoundEnd(Record, frozen=True, gc=False):
    """An exchange that ended a round of local steps early, after the last step of a loop, as rank 0 saw it."""

    step: Count
    """The last step before it."""
    time: Measure
    """Seconds from time zero."""
    wait_seconds: Measure
    """Seconds that training waited for the exchange."""
    compress_seconds: Measure
    """Selecting and packing."""
    collective_seconds: Measure
    """Sending, and waiting for other ranks."""
    num_bytes: Count = field(name="bytes")
    """Bytes that rank 0 sent."""
    num_messages: Count = field(name="messages")
    """Messages on the longest chain."""


class LeftOutSteps(Record, frozen=True, gc=False):
    """Local steps that other ranks than 0 left out, each by itself, since a gradient of theirs was not finite."""

    step: Count
    """The last step before it was told."""
    num: Count = field(name="steps")
    by: str
    """The ranks, and parameters of each."""


class WrittenCheckpoint(Record, frozen=True, gc=False):
    """A checkpoint of the job whose write has ended, as rank 0 saw it."""

    step: Count
    """Optimizer steps that the checkpoint holds."""
    time: Measure
    """Seconds from time zero to the end of the write."""
    pause_seconds: Measure = 0.0
    """Seconds that training waited for the copy."""
    seconds: Measure = 0.0
    """Seconds that the write took beside training."""
    num_bytes: Count = field(default=0, name="bytes")
    """Bytes of rank 0's part and the shared part."""
    problem: str = ""
    """The reason why the checkpoint is not complete; empty if it is."""
    in_memory: bool = False
    """True if the checkpoint is only in the memory of the workers' hosts."""


class Evaluation(Record, frozen=True):
    """A report of the user's on the model at one time: accuracy and whatever else."""

    step: Count
    time: Measure
    values: dict[str, float]
    """Whatever was reported, by name; values that were not finite are left out."""

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Parse an object, whose other fields are the values."""
        values = {name: value for name, value in finite_numbers(data).items() if name not in OF_EVERY_EVALUATION}
        return msgspec.convert(data | {"values": values}, cls)


Metric: TypeAlias = Step | Evaluation | LeftOutSteps | RoundEnd | WrittenCheckpoint
_KINDS: dict[str, type[Metric]] = {
    "step": Step,
    "evaluation": Evaluation,
    "left out": LeftOutSteps,
    "end of round": RoundEnd,
    "checkpoint": WrittenCheckpoint,
}


def metric_kind(line: dict[str, Any]) -> type[Metric] | None:
    """Return what a line is; None for what a later version may have added. A step's line has no event."""
    return _KINDS.get(str(line.get("event", "step")))


class DroppedSteps:
    """Counts the training steps of a run, and those that were dropped."""

    def __init__(self, steps: Iterable[Step] = (), left_out: Iterable[LeftOutSteps] = ()) -> None:
        self.num_steps, self.num, self.num_left_out = 0, 0, 0
        self.by = ""
        """The rank and the parameter of the last one, where that is known."""
        self.left_out_at: int | None = None
        """The step at which the last ones were told of."""
        self.left_out_by = ""
        """The ranks and parameters of those that ranks left out by themselves."""
        for step in steps:
            self.add(step)
        for told in left_out:
            self.add_left_out(told)

    def add(self, step: Step) -> None:
        """Count a step, unless it belongs to a trial."""
        if step.trial:
            return
        self.num_steps += 1
        if step.was_dropped:
            self.num += 1
            self.by = step.dropped_by or self.by

    def add_left_out(self, told: LeftOutSteps) -> None:
        """Count local steps that ranks left out by themselves."""
        self.num_left_out += told.num
        self.left_out_at, self.left_out_by = told.step, told.by

    def __str__(self) -> str:
        """Say how many; empty where no step was dropped."""
        by = f" ({self.by})" if self.by else ""
        of_all = f"{self.num} of {self.num_steps} steps were dropped, since a gradient was not finite{by}"
        steps = "1 local step was" if self.num_left_out == 1 else f"{self.num_left_out} local steps were"
        alone = f"{steps} left out by their rank alone, since its gradient was not finite ({self.left_out_by})"
        return "; ".join(([of_all] if self.num else []) + ([alone] if self.num_left_out else []))


@dataclass(frozen=True)
class Straggler:
    """A rank that the others wait for."""

    rank: int
    seconds: float
    """Seconds that it comes after the middle rank, in the median of its steps."""
    share: float
    """Share of the steps in which it comes last."""

    def __str__(self) -> str:
        return (
            f"rank {self.rank} comes {self.seconds:.2g} s after the others in {self.share:.0%} of the steps: they wait"
            " for its computing, and not for the network"
        )


def straggler_of(steps: Sequence[Step]) -> Straggler | None:
    """Return the rank that keeps others waiting in these steps, if one does."""
    known = [step for step in steps if step.last_rank is not None and step.late_seconds is not None]
    if len(known) < _FEWEST_STEPS:
        return None
    rank, count = Counter(step.last_rank for step in known).most_common(1)[0]
    late = median(step.late_seconds or 0.0 for step in known if step.last_rank == rank)
    is_material = late >= _SHARE_OF_STEP * median(step.step_seconds for step in known)
    if rank is None or count < _SHARE_OF_STEPS * len(known) or not is_material:
        return None
    return Straggler(rank, late, count / len(known))
