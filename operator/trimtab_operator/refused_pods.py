"""Why a Job cannot make its pods (a quota, pod security, a webhook): nothing but an event on the Job ever says so."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from trimtab_operator.cluster.api import Api, RefusedError
from trimtab_operator.cluster.resources import EVENTS, Object
from trimtab_operator.decide import parse_time
from trimtab_operator.pods import Problem
from trimtab_operator.policies.lacking_pods import seconds_to_question
from trimtab_operator.world import World

#: Reason of the Job controller's event.
_REASON = "FailedCreate"
#: Events that are read at most: the Job controller writes some 25, then one in five minutes, and each lives an hour.
_MOST = 100
#: What the Job controller and its event recorder put before the API server's words.
_PREFIXES = ("(combined from similar events): ", "Error creating: ")

_log = logging.getLogger(__name__)


@dataclass
class _Lack:
    """A Job that has fewer pods than workers."""

    child_uid: str
    since: datetime
    asked_at: datetime | None = None
    why: Problem | None = None


class RefusedPods:
    """What keeps Jobs from making pods, by ``namespace/name``. Never to be called from two threads with one key."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lacks: dict[str, _Lack] = {}

    def why(self, world: World) -> Problem | None:
        """Why the job's Job has fewer pods than workers; None if it has them, or nobody said, or it is early to ask.

        Raises `RefusedError` or one of `Unreachable` where the answer may come in a while.
        """
        child = world.own_child
        if child is None or not world.lacks_pods:
            self.forget(world.key)
            return None
        lack = self._lacks.get(world.key)
        if lack is None or lack.child_uid != child.uid:
            lack = self._lacks[world.key] = _Lack(child.uid, world.now)
        if _seconds_to_question(lack, world.now) <= 0:
            lack.why = self._ask(world, child.uid)
            lack.asked_at = world.now
        return lack.why

    def seconds_to_look(self, world: World) -> float | None:
        """Seconds until the job must be looked at again, for nothing may come to pass that tells; None: it need not."""
        lack = self._lacks.get(world.key)
        return None if lack is None else max(0.0, _seconds_to_question(lack, world.now))

    def forget(self, key: str) -> None:
        """The job has its pods, or is gone."""
        self._lacks.pop(key, None)

    def _ask(self, world: World, child_uid: str) -> Problem | None:
        selector = f"involvedObject.uid={child_uid},reason={_REASON}"
        try:
            found = self._api.list(EVENTS, world.namespace, fieldSelector=selector, limit=_MOST)["items"]
        except RefusedError as refusal:
            if refusal.status == 429 or refusal.status >= 500:
                raise
            _log.warning("%s: why pods are missing could not be read: %s", world.key, refusal)
            return None
        return newest_refusal(world, found)


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


def _said_at(event: Object) -> str:
    """When it was last said (RFC 3339, UTC, so that text sorts as time does)."""
    return event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""


def _seconds_to_question(lack: _Lack, now: datetime) -> float:
    asked_seconds_ago = None if lack.asked_at is None else (now - lack.asked_at).total_seconds()
    return seconds_to_question((now - lack.since).total_seconds(), asked_seconds_ago)
