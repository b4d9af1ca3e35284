"""Why workers do not come up where nothing but an event ever says so: on the Job, or on a pod.

A Job that cannot make its pods (a quota, pod security, a webhook), and a pod that cannot mount its volumes (a ConfigMap
that does not exist).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from trimtab_operator.cluster.api import Api, RefusedError
from trimtab_operator.cluster.resources import EVENTS, Object
from trimtab_operator.decide import parse_time
from trimtab_operator.pods import Pod, Problem
from trimtab_operator.policies.lacking_pods import MOUNT_PATIENCE_SECONDS, PATIENCE_SECONDS, seconds_to_question
from trimtab_operator.world import World

#: Reason of the Job controller's event.
_REASON = "FailedCreate"
#: Reason of the kubelet's event.
_MOUNT_REASON = "FailedMount"
#: Events that are read at most: recorders write some 25, then one in five minutes, and each lives an hour.
_MOST = 100
#: What the Job controller and its event recorder put before the API server's words.
_PREFIXES = ("(combined from similar events): ", "Error creating: ")

_MOUNT_REMEDY = (
    "once that is mended it starts by itself; "
    "where the template is wrong, delete the job, mend its file and create it anew"
)

_log = logging.getLogger(__name__)


@dataclass
class _Lack:
    """A Job that has fewer pods than workers, or pods that wait for their volumes."""

    child_uid: str
    reason: str
    """Of the events that would say why."""
    since: datetime
    asked_at: datetime | None = None
    pod: Pod | None = None
    """The pod that was asked of last; None if it was the Job."""
    why: Problem | None = None


class RefusedPods:
    """What keeps workers from coming up, by ``namespace/name``. Never to be called from two threads with one key."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lacks: dict[str, _Lack] = {}

    def why(self, world: World) -> Problem | None:
        """Why the job's Job has fewer pods than workers, or else why a pod cannot mount its volumes.

        None if nothing is lacking, or nobody said, or it is early to ask. One question at a time: what a pod lacks is
        asked when all pods are there.

        Raises `RefusedError` or one of `Unreachable` where the answer may come in a while.
        """
        child, mounting = world.own_child, _mounting(world)
        if child is None or not (world.lacks_pods or mounting):
            self.forget(world.key)
            return None
        reason = _REASON if world.lacks_pods else _MOUNT_REASON
        lack = self._lacks.get(world.key)
        if lack is None or (lack.child_uid, lack.reason) != (child.uid, reason):
            lack = self._lacks[world.key] = _Lack(child.uid, reason, world.now)
        if lack.pod is not None and lack.pod.uid not in {pod.uid for pod in mounting}:
            lack.why = None
        if _seconds_to_question(lack, world.now) <= 0:
            lack.pod = None if world.lacks_pods else _next_in_turn(mounting, lack)
            lack.why = self._ask(world, child.uid, lack)
            lack.asked_at = world.now
        return lack.why

    def seconds_to_look(self, world: World) -> float | None:
        """Seconds until the job must be looked at again, for nothing may come to pass that tells; None: it need not."""
        lack = self._lacks.get(world.key)
        return None if lack is None else max(0.0, _seconds_to_question(lack, world.now))

    def lacking_seconds(self, world: World) -> float:
        """For how long the job's Job has lacked pods, once it was asked why; 0 if it lacks none."""
        lack = self._lacks.get(world.key)
        if lack is None or lack.reason != _REASON or lack.asked_at is None:
            return 0.0
        return (world.now - lack.since).total_seconds()

    def forget(self, key: str) -> None:
        """The job lacks nothing, or is gone."""
        self._lacks.pop(key, None)

    def _ask(self, world: World, child_uid: str, lack: _Lack) -> Problem | None:
        selector = f"involvedObject.uid={lack.pod.uid if lack.pod else child_uid},reason={lack.reason}"
        try:
            found = self._api.list(EVENTS, world.namespace, fieldSelector=selector, limit=_MOST)["items"]
        except RefusedError as refusal:
            if refusal.status == 429 or refusal.status >= 500:
                raise
            _log.warning("%s: why workers do not come up could not be read: %s", world.key, refusal)
            return None
        return newest_failure_to_mount(lack.pod, found) if lack.pod else newest_refusal(world, found)


def newest_refusal(world: World, events: list[Object]) -> Problem | None:
    """What the newest of a Job's events says; None if there is none from after the job last had all its pods."""
    newest = max(events, key=_said_at, default=None)
    if newest is None:
        return None
    ready = world.status.condition("Ready")
    started = world.status.condition("Started")
    ran_until = parse_time(ready.last_transition_time) if ready and started and started.status == "True" else None
    said_at = parse_time(_said_at(newest))
    if ran_until is not None and (said_at is None or said_at < ran_until):
        return None
    said = newest.get("message", "")
    for prefix in _PREFIXES:
        said = said.removeprefix(prefix)
    return Problem(_REASON, f"the Job {world.name} cannot make pods: {said}")


def newest_failure_to_mount(pod: Pod, events: list[Object]) -> Problem | None:
    """What the newest of a pod's events says; None if there is none."""
    newest = max(events, key=_said_at, default=None)
    if newest is None:
        return None
    said = newest.get("message", "")
    return Problem(_MOUNT_REASON, f"worker {pod.worker} cannot mount its volumes: {said}; {_MOUNT_REMEDY}")


def _mounting(world: World) -> list[Pod]:
    """The pods of this attempt that wait for their volumes, for all that is known."""
    child = world.own_child
    if child is None or world.status.is_final or child.attempt != world.status.restarts:
        return []
    if child.is_suspended or child.is_deleting or child.is_finished:
        return []
    return [pod for pod in world.pods if pod.is_mounting and not pod.to_end_by]


def _next_in_turn(pods: list[Pod], lack: _Lack) -> Pod:
    """The pod to ask of: the same again once it said why, else the next, for of many one may only be slow."""
    said = [pod for pod in pods if lack.pod is not None and lack.why is not None and pod.uid == lack.pod.uid]
    last = lack.pod.worker if lack.pod else -1
    return said[0] if said else min(pods, key=lambda pod: (pod.worker <= last, pod.worker))


def _said_at(event: Object) -> str:
    """When it was last said (RFC 3339, UTC, so that text sorts as time does)."""
    return event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""


def _seconds_to_question(lack: _Lack, now: datetime) -> float:
    asked_seconds_ago = None if lack.asked_at is None else (now - lack.asked_at).total_seconds()
    patience = PATIENCE_SECONDS if lack.reason == _REASON else MOUNT_PATIENCE_SECONDS
    return seconds_to_question((now - lack.since).total_seconds(), asked_seconds_ago, patience)
