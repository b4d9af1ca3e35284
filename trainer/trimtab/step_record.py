"""One step in figures: what the controller hears of it, and the line of ``metrics.jsonl`` that stays."""

from __future__ import annotations

from typing import Any, SupportsFloat

from torch import Tensor
from trimtab_api.errors import UserError

from trimtab.control.types import NetworkView, StepReport
from trimtab.engine.outcome import Outcome
from trimtab.plan import Plan


def report_of(outcome: Outcome, plan: Plan, *, step: int, seconds: float, loss_scale: float | None) -> StepReport:
    """What this rank measured of a step that took so many seconds."""
    return StepReport(
        step=step,
        plan=plan,
        step_seconds=seconds,
        compute_seconds=seconds - outcome.wait_seconds,
        compress_seconds=outcome.compress_seconds,
        collective_seconds=outcome.collective_seconds,
        num_bytes=outcome.num_bytes,
        num_messages=outcome.num_messages,
        gain=1.0 if plan.is_dense else outcome.gain,
        residual_norm=outcome.residual_norm,
        finite=outcome.is_finite,
        loss_scale=loss_scale or 1.0,
    )


def metric_of(
    report: StepReport, loss: Tensor | float | None, view: NetworkView | None, *, in_trial: bool
) -> dict[str, Any]:
    """The line of a step; ``view`` is the network as rank 0 saw it last."""
    return {
        "step": report.step,
        "loss": number(loss),
        "step_seconds": report.step_seconds,
        "compute_seconds": report.compute_seconds,
        "compress_seconds": report.compress_seconds,
        "collective_seconds": report.collective_seconds,
        "bytes": report.num_bytes,
        "messages": report.num_messages,
        "plan": report.plan.name,
        "plan_version": report.plan.version,
        "gain": report.gain,
        "finite": report.finite,
        "latency": view.latency if view else None,
        "bandwidth": view.bandwidth if view else None,
        "network_stale": view.stale if view else None,
        "trial": in_trial,
    }


def number(value: Tensor | float | None) -> float | None:
    """A loss as a plain number."""
    return float(value.detach()) if isinstance(value, Tensor) else value


def metric_value(name: str, value: SupportsFloat) -> float:
    """One number that a script reports.

    Raises `UserError` where it is none; a tensor or an array of one element is one.
    """
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # as text, sequences and tensors of several elements raise
        raise UserError("report one number", field=name, value=str(value)[:80]) from None
