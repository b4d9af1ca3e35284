"""Reasons why workers do not come up that only an event gives.

An event of the Job says why it cannot make its pods (a quota, pod security, a webhook). An event of a pod says why it
cannot mount its volumes (a ConfigMap that does not exist).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from trimtab_operator.decisions.observed_state import ObservedState
from trimtab_operator.decisions.pods import Pod, Problem
from trimtab_operator.decisions.policies.timers import MOUNT_PATIENCE_SECONDS, PATIENCE_SECONDS, seconds_to_question
from trimtab_operator.kube.api import Api, RefusedError
from trimtab_operator.kube.resources import EVENTS, Object
from trimtab_operator.kube.text import parse_time

#: Reason of the Job controller's event.
_REASON = "FailedCreate"
#: Reason of the kubelet's event.
_MOUNT_REASON = "FailedMount"
#: Most events that are read: a recorder writes some 25, then one in five minutes, and each lives an hour.
_MOST = 100
#: Prefix that the Job controller and its event recorder put before the API server's message.
_PREFIXES = ("(combined from similar events): ", "Error creating: ")

_MOUNT_REMEDY = (
    "once that is mended it starts by itself; "
    "where the template is wrong, delete the job, mend its file and create it anew"
)

_log = logging.getLogger(__name__)


@dataclass
class _Inquiry:
    """A Job that has fewer pods than workers, or pods that wait for their volumes."""

    job_uid: str
    reason: str
    """The reason that the events have which would say why."""
    since: datetime
    asked_at: datetime | None = None
    pod: Pod | None = None
    """The pod whose events were read last; None if it was the Job's."""
    why: Problem | None = None


class PodCreationErrors:
    """Reasons that keep workers from coming up, by ``namespace/name``. Two threads must not use one key at a time."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._inquiries: dict[str, _Inquiry] = {}

    def explain(self, observed: ObservedState) -> Problem | None:
        """Return the reason why the Job has fewer pods than workers, or else why a pod cannot mount its volumes.

        The result is None if nothing is missing, no event gives a reason, or it is too early to ask. The operator asks
        one question at a time: it reads a pod's events once all pods are there.

        Raises:
            RefusedError: If the API server refuses for now; a later attempt may succeed.
            Unreachable: If the API server cannot be reached; a later attempt may succeed.
        """
        batch_job, mounting = observed.owned_job, _mounting(observed)
        if batch_job is None or not (observed.has_missing_pods or mounting):
            self.forget(observed.key)
            return None
        reason = _REASON if observed.has_missing_pods else _MOUNT_REASON
        inquiry = self._inquiries.get(observed.key)
        if inquiry is None or (inquiry.job_uid, inquiry.reason) != (batch_job.uid, reason):
            inquiry = self._inquiries[observed.key] = _Inquiry(batch_job.uid, reason, observed.now)
        if inquiry.pod is not None and inquiry.pod.uid not in {pod.uid for pod in mounting}:
            inquiry.why = None
        if _seconds_to_question(inquiry, observed.now) <= 0:
            inquiry.pod = None if observed.has_missing_pods else _next_in_turn(mounting, inquiry)
            inquiry.why = self._ask(observed, batch_job.uid, inquiry)
            inquiry.asked_at = observed.now
        return inquiry.why

    def seconds_to_question(self, observed: ObservedState) -> float | None:
        """Return the seconds until the job must be reconciled to ask again; None if nothing is to be asked."""
        inquiry = self._inquiries.get(observed.key)
        return None if inquiry is None else max(0.0, _seconds_to_question(inquiry, observed.now))

    def missing_pods_seconds(self, observed: ObservedState) -> float:
        """Return the seconds for which the Job has lacked pods; 0 if it lacks none, or its events are unread."""
        inquiry = self._inquiries.get(observed.key)
        if inquiry is None or inquiry.reason != _REASON or inquiry.asked_at is None:
            return 0.0
        return (observed.now - inquiry.since).total_seconds()

    def forget(self, key: str) -> None:
        """End the inquiry: nothing is missing, or the job is gone."""
        self._inquiries.pop(key, None)

    def _ask(self, observed: ObservedState, job_uid: str, inquiry: _Inquiry) -> Problem | None:
        selector = f"involvedObject.uid={inquiry.pod.uid if inquiry.pod else job_uid},reason={inquiry.reason}"
        try:
            found = self._api.list(EVENTS, observed.namespace, fieldSelector=selector, limit=_MOST)["items"]
        except RefusedError as refusal:
            if refusal.status == 429 or refusal.status >= 500:
                raise
            _log.warning("%s: events of missing pods could not be read: %s", observed.key, refusal)
            return None
        return newest_failure_to_mount(inquiry.pod, found) if inquiry.pod else newest_creation_error(observed, found)


def newest_creation_error(observed: ObservedState, events: list[Object]) -> Problem | None:
    """Return the newest message of a Job's events; None if there is none since the job last had all its pods."""
    newest = max(events, key=_said_at, default=None)
    if newest is None or observed.batch_job is None:
        return None
    ready = observed.status.condition("Ready")
    started = observed.status.condition("Started")
    ran_until = parse_time(ready.last_transition_time) if ready and started and started.status == "True" else None
    said_at = parse_time(_said_at(newest))
    if ran_until is not None and (said_at is None or said_at < ran_until):
        return None
    said = newest.get("message", "")
    for prefix in _PREFIXES:
        said = said.removeprefix(prefix)
    return Problem(_REASON, f"the Job {observed.batch_job.name} cannot make pods: {said}")


def newest_failure_to_mount(pod: Pod, events: list[Object]) -> Problem | None:
    """Return the newest message of a pod's events; None if there is none."""
    newest = max(events, key=_said_at, default=None)
    if newest is None:
        return None
    said = newest.get("message", "")
    return Problem(_MOUNT_REASON, f"worker {pod.worker} cannot mount its volumes: {said}; {_MOUNT_REMEDY}")


def _mounting(observed: ObservedState) -> list[Pod]:
    """Return the pods of this attempt that may be waiting for their volumes."""
    batch_job = observed.owned_job
    if batch_job is None or observed.status.is_final or batch_job.attempt != observed.status.restarts:
        return []
    if batch_job.is_suspended or batch_job.is_deleting or batch_job.is_finished:
        return []
    return [pod for pod in observed.pods if pod.is_mounting and not pod.to_end_by]


def _next_in_turn(pods: list[Pod], inquiry: _Inquiry) -> Pod:
    """Return the pod whose events to read next.

    It is the pod that last gave a reason, or else the next one, since one pod may only be slow.
    """
    said = [pod for pod in pods if inquiry.pod is not None and inquiry.why is not None and pod.uid == inquiry.pod.uid]
    last = inquiry.pod.worker if inquiry.pod else -1
    return said[0] if said else min(pods, key=lambda pod: (pod.worker <= last, pod.worker))


def _said_at(event: Object) -> str:
    """Return the time of an event's last occurrence (RFC 3339 in UTC, so that text sorts as time does)."""
    return event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""


def _seconds_to_question(inquiry: _Inquiry, now: datetime) -> float:
    asked_seconds_ago = None if inquiry.asked_at is None else (now - inquiry.asked_at).total_seconds()
    patience = PATIENCE_SECONDS if inquiry.reason == _REASON else MOUNT_PATIENCE_SECONDS
    return seconds_to_question((now - inquiry.since).total_seconds(), asked_seconds_ago, patience)
