"""Writing events. A status change is observed once, so each of its events is kept until the API server has it."""

from __future__ import annotations

import logging
from collections import deque

from trimtab_operator.kube.api import Api, RefusedError
from trimtab_operator.kube.resources import EVENTS, Object
from trimtab_operator.observability import metrics

#: Most events of one job that wait to be written; when one more comes, the oldest is dropped.
_MAX_PENDING = 100

_log = logging.getLogger(__name__)


class EventRecorder:
    """The events that wait to be written, by job (``namespace/name``). Two threads must not use one key at a time.

    Events wait in memory: those of an operator that dies after writing a status and before writing its events are lost.
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

        Raises `RefusedError` or one of `Unreachable` where a later attempt may succeed; the rest then stays pending.
        An event that exists already was written by an earlier attempt whose answer was lost. An event that the API
        server refuses for good is dropped.
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
