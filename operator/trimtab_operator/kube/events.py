"""Events: what a user reads under ``kubectl describe``, told once, after the status that they explain."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from trimtab_api.trainingjob.status import State, Status
from trimtab_api.trainingjob.types import API_VERSION, KIND

from trimtab_operator.kube.labels import MANAGER
from trimtab_operator.kube.resources import Object
from trimtab_operator.kube.truncate import truncate

#: Reason of Ready while every worker is ready and no step is done yet.
WAITING_FOR_TRAINING = "WaitingForTraining"
#: Reasons of Ready that name no obstacle.
_NO_OBSTACLES = (*get_args(State), WAITING_FOR_TRAINING)
#: Reasons of events that follow from what rank 0 says of training alone.
NEWS = ("PlanChanged", "NetworkDegraded", "NetworkRecovered")


@dataclass(frozen=True)
class Event:
    """One thing that came to pass."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str


def events(before: Status, after: Status) -> Iterator[Event]:
    """What a change of status is worth telling."""
    if after.restarts > before.restarts:
        yield Event("Warning", "Restarting", f"restart {after.restarts}: {after.last_restart_reason}")
    if after.state == "Running" != before.state:  # what rank 0 has said of its first step may hold a plan already
        yield Event("Normal", "Running", after.message)
    if after.plan is not None and after.plan.version > 0 and _plan(after) != _plan(before):
        since = f"from step {after.plan.adopted_at_step}"
        yield Event("Normal", "PlanChanged", f"{after.plan.name} {since}: {after.plan.reason}")
    yield from _condition_events(before, after)
    if after.state != before.state:
        match after.state:
            case "Succeeded":
                yield Event("Normal", "Succeeded", after.message)
            case "Failed":
                failed = after.condition("Failed")
                yield Event("Warning", failed.reason if failed else "Failed", after.message)
            case "Suspended":
                yield Event("Normal", "Suspended", after.message)
            case "Pending" | "Starting" | "Restarting" if (
                before.state == "Suspended" and after.restarts == before.restarts
            ):
                yield Event("Normal", "Resumed", after.message)


def _plan(status: Status) -> object:
    """What makes a plan another: versions begin anew when ranks restart, at 0, which nobody has decided on."""
    return (status.plan.version, status.plan.name) if status.plan else None


def _condition_events(before: Status, after: Status) -> Iterator[Event]:
    """A network that degrades or recovers; an obstacle that keeps workers from starting."""
    was, now = before.condition("NetworkDegraded"), after.condition("NetworkDegraded")
    if now is not None and now.status != (was.status if was else "False"):
        if now.status == "True":
            yield Event("Warning", "NetworkDegraded", now.message)
        else:
            yield Event("Normal", "NetworkRecovered", now.message)
    was, now = before.condition("Ready"), after.condition("Ready")
    if now is not None and now.reason not in _NO_OBSTACLES and (was is None or was.reason != now.reason):
        yield Event("Warning", now.reason, now.message)


def manifest(event: Event, namespace: str, name: str, uid: str, time: str, sequel: str) -> Object:
    """The event as an object. Its name follows from what it says, so that it exists once however often it is told.

    ``sequel`` tells apart what may rightly come to pass again: after a restart, or after a suspension.
    """
    said = f"{uid}/{sequel}/{event.reason}/{event.message}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": namespace,
            "name": f"{name}.{hashlib.sha256(said.encode()).hexdigest()[:16]}",
        },
        "involvedObject": {"apiVersion": API_VERSION, "kind": KIND, "namespace": namespace, "name": name, "uid": uid},
        "type": event.kind,
        "reason": event.reason,
        "message": truncate(event.message),
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
