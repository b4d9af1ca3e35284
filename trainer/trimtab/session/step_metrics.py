"""One step in figures: what the controller hears of it, and the line of ``metrics.jsonl`` that stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from torch import Tensor
from trimtab_api.netmon.view import NetworkView

from trimtab.control.types import StepReport
from trimtab.engine.exchange.consensus import StepConsensus
from trimtab.engine.exchange.outcome import Outcome
from trimtab.engine.phase_timer import Phase
from trimtab.plan.plan import Plan


def report_of(
    outcome: Outcome,
    plan: Plan,
    step: int,
    phases: Mapping[Phase, float],
    loss_scale: float | None,
    loss: Tensor | float | None,
    *,
    steps_per_epoch: float,
) -> StepReport:
    """Return what this rank measured of a step; waiting for exchanges was no computing.

    Args:
        outcome: What came of the step's exchange.
        plan: The plan in force.
        step: The training step.
        phases: Seconds of each phase, which make up the step.
        loss_scale: A GradScaler's; None without one.
        loss: This rank's loss; None where the script does not tell it.
        steps_per_epoch: Steps of the present loop; 0: no loop, or local steps are barred; infinity: not known.
    """
    seconds = sum(phases.values())
    return StepReport(
        step=step,
        plan=plan,
        step_seconds=seconds,
        compute_seconds=seconds - phases["exposed"],
        compress_seconds=outcome.compress_seconds,
        collective_seconds=outcome.collective_seconds,
        num_bytes=outcome.num_bytes,
        num_messages=outcome.num_messages,
        gain=1.0 if plan.is_dense else None,
        residual_norm=outcome.residual_norm,
        finite=outcome.is_finite,
        loss_scale=loss_scale or 1.0,
        steps_per_epoch=steps_per_epoch,
        loss=number(loss),
    )


class Rounds:
    """Brings steps together that share an exchange, and tells of each exchange once all is known of it.

    Under source *gradient* every step is a round by itself. Under *update* a round is H local steps, of which the last
    exchanges: what a step takes is then the mean over the round, and what the exchange takes is told whole.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._steps: list[StepReport] = []
        self._ended: StepReport | None = None

    @property
    def loss(self) -> float | None:
        """Loss of the last round that has ended, on this rank; None where it is not known."""
        return None if self._ended is None else self._ended.loss

    @property
    def has_ended(self) -> bool:
        """True if the last step ended a round."""
        return not self._steps

    def restart(self) -> None:
        """Forget what was before: the plan has changed, or a trial has ended."""
        self._steps, self._ended = [], None

    def end_early(self, consensus: StepConsensus | None) -> StepReport | None:
        """Cut the round short at a loop's end, and return the round before as all ranks saw it, if any.

        Where no loop has two whole rounds, it is all that is heard of them.
        """
        before = None if self._ended is None else completed(self._ended, consensus, self._rank)
        self.restart()
        return before

    def add(self, report: StepReport, consensus: StepConsensus | None) -> StepReport | None:
        """Add a step; return the round before as all ranks saw it, if one has ended by this step; else None.

        A plan that is adopted within a round ends it with the round's last step.
        """
        if self._steps and report.plan != self._steps[0].plan:
            self.restart()  # the round that a new plan's exchange has ended is like no other
            return None
        self._steps.append(report)
        if report.plan.local_steps and consensus is None:
            return None
        before = None if self._ended is None else completed(self._ended, consensus, self._rank)
        self._ended, self._steps = _round_of(self._steps), []
        return before


def _round_of(steps: list[StepReport]) -> StepReport:
    if len(steps) == 1:
        return steps[0]
    losses = [step.loss for step in steps if step.loss is not None]
    return replace(
        steps[-1],
        step_seconds=fmean(step.step_seconds for step in steps),
        compute_seconds=fmean(step.compute_seconds for step in steps),
        finite=all(step.finite for step in steps),
        loss=fmean(losses) if len(losses) == len(steps) else None,
    )


def completed(report: StepReport, following: StepConsensus | None, rank: int) -> StepReport:
    """Return a step of this rank's as all ranks saw it, which they tell each other in the ``following`` step.

    Time on the wire is the network's; waiting for a slower rank is not. So the exchange is timed by the rank that came
    to it last, and waited for nobody, and computing took as long as it did there. At the end of a round of local steps
    ranks come so far apart that the last one may find all that it waits for there: what that hid is told beside it.
    """
    if following is None:
        return report
    report = replace(report, loss=following.loss)
    if following.last_rank is None:
        return report
    arrivals, num_steps = following.arrival_seconds, max(1, report.plan.local_steps)
    late = max(0.0, max(arrivals) - arrivals[rank]) / num_steps
    return replace(
        report,
        compute_seconds=min(report.step_seconds, report.compute_seconds + late),
        collective_seconds=following.collective_seconds[following.last_rank],
        hidden_seconds=max(arrivals) - min(arrivals) if num_steps > 1 else 0.0,
        gain=1.0 if report.plan.is_dense else following.gain,
        arrival_seconds=arrivals,
    )


def metric_of(
    report: StepReport,
    outcome: Outcome,
    phases: Mapping[Phase, float],
    view: NetworkView | None,
    *,
    in_trial: bool,
    dropped_by: str = "",
) -> dict[str, Any]:
    """Return the line of a step.

    Who came last to the exchange, and how late, is of the step before.

    Args:
        report: What this rank measured.
        outcome: What came of the step's exchange.
        phases: Seconds of each phase.
        view: The network as rank 0 saw it last.
        in_trial: Whether the step is one of a trial.
        dropped_by: The ranks and parameters that were not finite.
    """
    consensus = outcome.consensus
    return {
        "step": report.step,
        "loss": report.loss,
        "step_seconds": report.step_seconds,
        "compute_seconds": report.compute_seconds,
        "forward_seconds": phases["forward"],
        "backward_seconds": phases["backward"],
        "optimizer_seconds": phases["optimizer"],
        "compress_seconds": report.compress_seconds,
        "collective_seconds": report.collective_seconds,
        "bytes": report.num_bytes,
        "messages": report.num_messages,
        "plan": report.plan.name,
        "plan_version": report.plan.version,
        "gain": 1.0 if report.plan.is_dense else consensus.gain if consensus else None,
        "achieved_ratio": outcome.achieved_ratio,
        "residual_norm": outcome.residual_norm,
        "missing_rate": outcome.missing_rate,
        "finite": report.finite,
        "dropped_by": dropped_by,
        "scheme": outcome.figures,
        "last_rank": consensus.last_rank if consensus else None,
        "late_seconds": consensus.late_seconds if consensus else None,
        "latency": view.latency if view else None,
        "bandwidth": view.bandwidth if view else None,
        "network_stale": view.stale if view else None,
        "trial": in_trial,
    }


def round_end_of(outcome: Outcome, plan: Plan, steps: int, phases: Mapping[Phase, float]) -> dict[str, Any]:
    """Return the line of an exchange that ended a round of local steps early; it belongs to no step.

    Args:
        outcome: What came of the exchange.
        plan: The plan in force.
        steps: Training steps taken.
        phases: Seconds of each phase since the last step ended.
    """
    return {
        "event": "end of round",
        "step": steps - 1,
        "wait_seconds": phases["exposed"],
        "compress_seconds": outcome.compress_seconds,
        "collective_seconds": outcome.collective_seconds,
        "bytes": outcome.num_bytes,
        "messages": outcome.num_messages,
        "plan": plan.name,
        "plan_version": plan.version,
        "finite": outcome.is_finite,
    }


def said_of(outcome: Outcome) -> str:
    """Return what became of a step of which some gradients are not finite, for people."""
    names = ", ".join(outcome.non_finite[:5]) + (" and others" if len(outcome.non_finite) > 5 else "")
    what = "this rank leaves its own step out" if outcome.is_finite else "the step is dropped on all ranks"
    return f"gradient not finite in {names}; {what}"


def number(value: Tensor | float | None) -> float | None:
    """Return a loss as a plain number."""
    return float(value.detach()) if isinstance(value, Tensor) else value
