"""Decisions, numbered and written down: the lines of ``decisions.jsonl``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trimtab.control.decision import Decision, Inputs, Measured
from trimtab.control.search.selection import Choice
from trimtab.plan.profile import Profile
from trimtab.plan.timeline import Timeline
from trimtab.run_files.schema import Trigger

#: Rows of ``trace.jsonl``, by what goes on there.
_ROWS = {"compute": "computing", "compress": "compressing"}


class DecisionLog:
    """Numbers decisions and versions of the plan, and keeps their lines until somebody drains them."""

    def __init__(self) -> None:
        self.next_id = 1
        self.next_version = 1
        self._lines: list[dict[str, Any]] = []

    def decide(self, trigger: Trigger, step: int, now: float, inputs: Inputs, choice: Choice) -> Decision:
        """Write a choice down; if it changes the plan, the plan adopted has a new version."""
        previous, chosen = choice.previous, choice.chosen
        decision = Decision(
            id=self.next_id,
            step=step,
            time=now,
            trigger=trigger,
            inputs=inputs,
            previous=previous.plan,
            adopted=chosen.plan.with_version(self.next_version) if choice.is_change else previous.plan,
            predicted_previous_seconds=previous.step_seconds,
            predicted_seconds=chosen.step_seconds,
            pareto=choice.front,
            reason=choice.reason,
        )
        self.next_id += 1
        self.next_version += choice.is_change
        self._lines.append(decision.to_json())
        return decision

    def measured(self, measured: Measured | None) -> None:
        """Write down how a change turned out, if enough steps have passed to say so."""
        if measured is not None:
            self._lines.append(measured.to_json())

    def profiled(self, profile: Profile, predicted: Timeline | None, now: float) -> None:
        """Write down what profiled steps measured as a whole."""
        self._lines.append(
            {
                "record": "profile",
                "step": profile.step,
                "time": now,
                "num_steps": profile.num_steps,
                "plan": profile.plan.name,
                "lead_seconds": profile.lead_seconds,
                "backward_seconds": profile.backward_seconds,
                "buckets": [asdict(bucket) for bucket in profile.buckets],
                "loss": profile.loss,
                "squared_gradient_norm": profile.squared_gradient_norm,
                "gradient_variance": profile.gradient_variance,
                "learning_rate": profile.learning_rate,
                "predicted": None if predicted is None else _step_of(predicted),
            }
        )

    def drain(self) -> list[dict[str, Any]]:
        """Return the lines since the last call, in order."""
        lines, self._lines = self._lines, []
        return lines

    def state_dict(self) -> dict[str, int]:
        """Return the next numbers, as JSON data."""
        return {"next_id": self.next_id, "next_version": self.next_version}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Inverse of `state_dict`."""
        self.next_id, self.next_version = state["next_id"], state["next_version"]


def _step_of(timeline: Timeline) -> dict[str, Any]:
    """Return one step, in the rows of ``trace.jsonl``."""
    spans = [
        {"row": f"link {span.link}" if span.what == "send" else _ROWS[span.what], "begin": span.begin, "end": span.end}
        for span in timeline.spans
    ]
    return {"step_seconds": timeline.ends[-1], "spans": spans}
