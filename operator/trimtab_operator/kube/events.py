"""Events, which ``kubectl describe`` shows: each is written once, after the status that it explains.

A status change is observed once, so each of its events is kept until the API server has it.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from trimtab_api.trainingjob.status import ConditionType, State, Status
from trimtab_api.trainingjob.types import API_VERSION, KIND

from trimtab_operator.kube.api import Api, RefusedError
from trimtab_operator.kube.labels import MANAGER
from trimtab_operator.kube.resources import EVENTS, Object
from trimtab_operator.kube.text import truncate
from trimtab_operator.observability import metrics

#: Reason of Ready while every worker is ready and no step is done yet.
WAITING_FOR_TRAINING = "WaitingForTraining"
#: Reasons of Ready that name no obstacle.
_NO_OBSTACLES = (*get_args(State), WAITING_FOR_TRAINING)
#: What rank 0 says is bad, and the event that tells that it is good again.
_RECOVERED: dict[ConditionType, str] = {
    "NetworkDegraded": "NetworkRecovered",
    "CheckpointFailing": "CheckpointRecovered",
}
#: Reasons of events that follow from what rank 0 says of training alone.
NEWS = ("PlanChanged", "NetworkDegraded", "NetworkRecovered", "CheckpointFailing", "CheckpointRecovered")


@dataclass(frozen=True)
class Event:
    """An event of a job."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str


def events(before: Status, after: Status) -> Iterator[Event]:
    """Yield the events that a change of status is worth."""
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
    """Return the identity of a plan: versions begin anew when ranks restart, at 0, which nobody has decided on."""
    return (status.plan.version, status.plan.name) if status.plan else None


def _condition_events(before: Status, after: Status) -> Iterator[Event]:
    """Yield events for what rank 0 says is bad, or good again, and for a problem that keeps workers from starting."""
    for kind, recovered in _RECOVERED.items():
        was, now = before.condition(kind), after.condition(kind)
        if now is not None and now.status != (was.status if was else "False"):
            bad = now.status == "True"
            yield Event("Warning" if bad else "Normal", kind if bad else recovered, now.message)
    was, now = before.condition("Ready"), after.condition("Ready")
    if now is not None and now.reason not in _NO_OBSTACLES and (was is None or was.reason != now.reason):
        yield Event("Warning", now.reason, now.message)


def manifest(event: Event, namespace: str, name: str, uid: str, time: str, sequel: str) -> Object:
    """Return the event as an object, named by a hash of its text so that it exists only once.

    Args:
        event: The event.
        namespace: The TrainingJob's namespace.
        name: The TrainingJob's name.
        uid: The TrainingJob's uid.
        time: The time of the event, as text.
        sequel: Distinguishes events that may rightly happen again: after a restart, or after a suspension.
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


#: Most events of one job that wait to be written; when one more comes, the oldest is dropped.
_MAX_PENDING = 100

_log = logging.getLogger(__name__)


class EventRecorder:
    """The events that wait to be written, by job (``namespace/name``). Two threads must not use one key at a time.

    Events wait in memory: if the operator dies between writing a status and writing its events, these are lost.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pending: dict[str, deque[Object]] = {}

    def enqueue(self, key: str, event: Object) -> None:
        """Have the next `flush` write the event."""
        pending = self._pending.setdefault(key, deque(maxlen=_MAX_PENDING))
        if len(pending) == _MAX_PENDING:
            metrics.EVENTS_DROPPED.labels(reason="too many").inc()
        pending.append(event)

    def flush(self, key: str) -> None:
        """Write the job's pending events, oldest first.

        An event that exists already was written by an earlier attempt whose answer was lost. An event that the API
        server refuses for good is dropped. After an exception the rest stays pending.

        Raises:
            RefusedError: If the API server refuses for now; a later attempt may succeed.
            Unreachable: If the API server cannot be reached; a later attempt may succeed.
        """
        pending = self._pending.get(key)
        while pending:
            try:
                self._api.create(EVENTS, pending[0])
            except RefusedError as refusal:
                if refusal.status == 429 or refusal.status >= 500:
                    raise
                if refusal.reason != "AlreadyExists":
                    metrics.EVENTS_DROPPED.labels(reason="refused").inc()
                    _log.warning("%s: an event could not be written: %s", key, refusal)
            pending.popleft()
        self.forget(key)

    def forget(self, key: str) -> None:
        """Drop the job's pending events: all are written, or the job is gone."""
        self._pending.pop(key, None)
