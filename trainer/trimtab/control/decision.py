"""One decision of the controller, as it is logged: a line of ``decisions.jsonl`` and a Kubernetes event."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trimtab.plan.plan import Plan
from trimtab.run_files.schema import Trigger


@dataclass(frozen=True)
class Prediction:
    """One plan as the models see it."""

    plan: Plan
    compress_seconds: float
    """Selection, a mean step's share: a round of local steps, or merged gradients, are selected from once."""
    sync_seconds: float
    """The part of a mean step that is neither computation nor selection: the exchange that backward does not hide."""
    gain: float
    convergence_slowdown: float
    """Predicted steps to the target, over dense's."""
    step_seconds: float
    """Predicted wall time of a whole step."""
    doubt: float = 0.0
    """Margin (log) by which it must reach the target before dense to count as alike, for its steps are known less."""

    @property
    def compute_seconds(self) -> float:
        """The part of the step that is neither selection nor exchange."""
        return self.step_seconds - self.compress_seconds - self.sync_seconds

    def to_json(self) -> dict[str, Any]:
        """Return plain data: the plan by its short name, its fusion by the number of buffers."""
        return {
            "plan": self.plan.name,
            "buffers": len(self.plan.fusion.cuts),
            "compress_seconds": self.compress_seconds,
            "sync_seconds": self.sync_seconds,
            "gain": self.gain,
            "relative_steps": self.convergence_slowdown,  # as runs of before have it
            "step_seconds": self.step_seconds,
        }


@dataclass(frozen=True)
class Inputs:
    """The facts that were known when the decision was taken."""

    revision: int
    latency: float
    bandwidth: float
    gain: float
    """Average gain under the previous plan."""
    compute_seconds: float
    dense_step_seconds: float
    """Predicted, or measured where dense ran on this network."""
    optimizer: str
    """Its class, by whose family steps are counted: ``AdamW (adam)``."""


@dataclass(frozen=True)
class Decision:
    """One choice. ``previous == adopted`` (but for the version) where the present plan stayed the best."""

    id: int
    step: int
    time: float
    """Seconds, on the clock that the session passes in."""
    trigger: Trigger
    inputs: Inputs
    previous: Plan
    adopted: Plan
    predicted_previous_seconds: float
    predicted_seconds: float
    """Predicted wall time of a step under the previous plan, and under the one adopted."""
    pareto: tuple[Prediction, ...]
    reason: str
    """One plain sentence."""

    @property
    def changed(self) -> bool:
        """True if the plan changed."""
        return self.previous.with_version(0) != self.adopted.with_version(0)

    def to_json(self) -> dict[str, Any]:
        """Return one line of ``decisions.jsonl``, with ``record`` = ``decision``."""
        return {
            "record": "decision",
            "id": self.id,
            "step": self.step,
            "time": self.time,
            "trigger": self.trigger,
            "changed": self.changed,
            "reason": self.reason,
            "previous": {"name": self.previous.name, **self.previous.to_json()},
            "adopted": {"name": self.adopted.name, **self.adopted.to_json()},
            "predicted_previous_seconds": self.predicted_previous_seconds,
            "predicted_seconds": self.predicted_seconds,
            "inputs": asdict(self.inputs),
            "pareto": [prediction.to_json() for prediction in self.pareto],
        }


@dataclass(frozen=True)
class Measured:
    """The measured outcome of a decision, some steps later: the line that follows it, under the same id."""

    id: int
    step: int
    time: float
    previous_seconds: float | None
    """Mean step time under the previous plan, on the network of the decision; None where it never ran there."""
    seconds: float
    """Mean step time under the plan adopted."""
    num_steps: int

    def to_json(self) -> dict[str, Any]:
        """Return one line of ``decisions.jsonl``, with ``record`` = ``measured``."""
        return {
            "record": "measured",
            "id": self.id,
            "step": self.step,
            "time": self.time,
            "measured_previous_step_seconds": self.previous_seconds,
            "measured_step_seconds": self.seconds,
            "num_steps": self.num_steps,
        }
