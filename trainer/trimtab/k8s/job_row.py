"""The row of a TrainingJob, from its object at the API server. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trimtab_api.errors import UserError
from trimtab_api.units import parse_duration


@dataclass(frozen=True)
class JobRow:
    """One job; None where its status does not tell."""

    namespace: str
    name: str
    state: str
    step: int | None
    loss: float | None
    step_seconds: float | None
    plan: str | None
    gain: float | None
    progress_at: float | None
    """Time of the last step of training, in seconds since 1970."""
    message: str
    """The operator's: why it waits, or which rank the others wait for."""
    plan_reason: str | None = None
    """The reason for this plan, and its first step."""
    network: str | None = None
    """Its slowest link."""
    workers: str | None = None
    """Number of workers that are ready, and how often and why all were restarted."""

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> JobRow:
        """Return the row of one object; a job that no operator has seen yet is Pending (kubectl shows no state)."""
        metadata, status = job["metadata"], job.get("status") or {}
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            state=status.get("state", "Pending"),
            step=status.get("step"),
            loss=status.get("loss"),
            step_seconds=_duration(status.get("stepTime")),
            plan=(status.get("plan") or {}).get("name"),
            gain=status.get("gain"),
            progress_at=_seconds(status.get("lastProgressTime")),
            message=status.get("message", "") if status else "no operator has looked at it yet",
            plan_reason=_plan_reason(status.get("plan")),
            network=_network(status.get("network")),
            workers=_workers(status),
        )

    def since_progress(self, now: float) -> float | None:
        """Return the seconds since training last got a step further; None where it does not train."""
        if self.progress_at is None or self.state in ("Succeeded", "Failed", "Suspended"):
            return None
        return max(0.0, now - self.progress_at)

    def to_json(self, now: float) -> dict[str, Any]:
        """Return plain data, whose figures are in base units."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "state": self.state,
            "step": self.step,
            "loss": self.loss,
            "step_seconds": self.step_seconds,
            "plan": self.plan,
            "gain": self.gain,
            "since_progress_seconds": self.since_progress(now),
            "message": self.message,
            "plan_reason": self.plan_reason,
            "network": self.network,
            "workers": self.workers,
        }


def _plan_reason(plan: Mapping[str, Any] | None) -> str | None:
    return f"since step {plan['adoptedAtStep']}: {plan['reason']}" if plan else None


def _network(network: Mapping[str, Any] | None) -> str | None:
    if not network:
        return None
    stale = ", too old to trust" if network.get("stale") else ""
    return f"slowest link: {network['latency']} one way, {network['bandwidth']}{stale}"


def _workers(status: Mapping[str, Any]) -> str | None:
    if "workers" not in status:
        return None
    told = f"{status['workers'].get('ready', 0)} ready"
    restarts = status.get("restarts", 0) + status.get("disruptions", 0)
    if restarts:
        told += f"; restarted {restarts} times, last because {status.get('lastRestartReason') or 'of a reason unknown'}"
    return told


def _duration(text: str | None) -> float | None:
    """Parse a duration in seconds; None for what another version may have written there."""
    try:
        return parse_duration(text) if text else None
    except UserError:
        return None


def _seconds(text: str | None) -> float | None:
    """Parse a time as Kubernetes writes it, in seconds."""
    if not text:
        return None
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
