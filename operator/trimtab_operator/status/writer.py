"""The writer of statuses, and of the events and metrics of each change, within the budget of rank 0's news."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from trimtab_api.throttling import TokenBucket
from trimtab_api.trainingjob.status import Status

from trimtab_operator.kube import events
from trimtab_operator.kube.api import Api, RefusedError
from trimtab_operator.kube.events import EventRecorder
from trimtab_operator.kube.resources import TRAINING_JOBS, Object
from trimtab_operator.kube.text import write_time
from trimtab_operator.observability import metrics
from trimtab_operator.status.throttle import brings_news, without_training

#: Writes of a status that rank 0's news alone asks for, one after the other, and seconds for each one beyond.
NEWS_WRITES, SECONDS_PER_NEWS_WRITE = 5, 10.0
#: Events that rank 0's news alone gives rise to, likewise. More are left out: the status says how things are now.
NEWS_EVENTS, SECONDS_PER_NEWS_EVENT = 25, 60.0

_log = logging.getLogger(__name__)


class _NewsBudget:
    """The budget for changes of one job's plan and network figures, which rank 0 can cause at will."""

    def __init__(self) -> None:
        self.writes = TokenBucket(NEWS_WRITES, 1, period=SECONDS_PER_NEWS_WRITE)
        self.events = TokenBucket(NEWS_EVENTS, 1, period=SECONDS_PER_NEWS_EVENT)


class StatusWriter:
    """A writer of statuses by job key, ``namespace/name``.

    No two threads may call it with the same key at a time.
    """

    def __init__(self, api: Api, recorder: EventRecorder, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._recorder = recorder
        self._clock = clock
        self._written: dict[str, int] = {}
        """Resource version of each job when its status was last written."""
        self._news: dict[str, _NewsBudget] = {}

    def is_older_than_written(self, key: str, resource: Object) -> bool:
        """Return whether this copy of the job is from before its status was last written."""
        return int(resource["metadata"]["resourceVersion"]) < self._written.get(key, 0)

    def seconds_to_news_write(self, key: str, now: datetime) -> float:
        """Return the seconds until rank 0's news may cost a write of the job's status."""
        return self._budget(key).writes.seconds_to_level(1, now.timestamp())

    def forget(self, key: str) -> None:
        """Forget a job that is gone."""
        self._written.pop(key, None)
        self._news.pop(key, None)

    def _budget(self, key: str) -> _NewsBudget:
        return self._news.setdefault(key, _NewsBudget())

    def write(self, resource: Object, before: Status, after: Status) -> None:
        """Write the status, then record the events of the change.

        Nothing newer is overwritten: the API server then answers Conflict.
        """
        metadata, at = resource["metadata"], self._clock()
        now = write_time(at)
        key = f"{metadata['namespace']}/{metadata['name']}"
        try:
            written = self._apply(metadata, after, now)
        except RefusedError as refusal:
            is_of_content = refusal.status in (400, 413, 422, 500)  # 500: of another type than the definition says
            if not is_of_content or without_training(before, after) == after:
                raise
            _log.warning("%s: its status is written without what rank 0 says: %s", key, refusal)
            after = without_training(before, after)
            written = self._apply(metadata, after, now)
        self._written[key] = int(written["metadata"]["resourceVersion"])
        news = self._budget(key)
        if brings_news(before, after):
            news.writes.take(at.timestamp())
        attempt = f"{after.restarts}/{after.start_time or before.start_time}"
        for event in events.events(before, after):
            if event.reason in events.NEWS and not news.events.take(at.timestamp()):
                continue
            said = events.manifest(event, metadata["namespace"], metadata["name"], metadata["uid"], now, sequel=attempt)
            self._recorder.enqueue(key, said)
        if after.restarts > before.restarts:
            metrics.RESTARTS.labels(counted=str(after.disruptions == before.disruptions).lower()).inc()
        if after.is_final and not before.is_final:
            metrics.FINISHED.labels(state=after.state).inc()

    def _apply(self, metadata: Object, status: Status, now: str) -> Object:
        """Send a status; return the metadata of the job as it is then."""
        manifest: dict[str, Any] = {
            "apiVersion": TRAINING_JOBS.api_version,
            "kind": TRAINING_JOBS.kind,
            "metadata": {key: metadata[key] for key in ("name", "namespace", "resourceVersion")},
            "status": status.model_copy(update={"last_update_time": now}).model_dump(
                mode="json", by_alias=True, exclude_none=True
            ),
        }
        return self._api.apply(TRAINING_JOBS, manifest, subresource="status")
