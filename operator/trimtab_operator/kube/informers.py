"""Caches of collections: the official client's SharedInformer, fed with plain data, and its last progress."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from kubernetes.informer import ADDED, DELETED, MODIFIED, SharedInformer
from trimtab_api.throttling import Backoff

from trimtab_operator.kube.api import Api, RefusedError, Unreachable, as_api_exception
from trimtab_operator.kube.pages import PAGE_SIZE
from trimtab_operator.kube.resources import Object, Resource

#: Seconds after which the server ends a watch; a new one then resumes where it ended. So a quiet watch shows life.
WATCH_SECONDS = 60
#: Seconds without a list, a watch, an event or a failed attempt at one, after which an informer is stuck. While the API
#: server is unreachable no informer is stuck: a restart would not help, and would take time when the server is back.
STUCK_SECONDS = 180.0

logging.getLogger("kubernetes.informer.informer").addFilter(lambda record: _in_one_line(record))

#: Seconds between two attempts while the API server refuses or cannot be reached.
_BACKOFF = Backoff(first=0.25, longest=10.0)


class Informer:
    """A cache of one collection, kept up to date by a thread.

    ``trim`` cuts an object down to what its readers need, in place, before they see it: a cache holds thousands.
    ``changed`` is called with each object that was added or changed, ``removed`` with each that is gone.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        namespace: str | None,
        trim: Callable[[Object], None],
        changed: Callable[[Object], None],
        removed: Callable[[Object], None],
        label_selector: str | None = None,
    ) -> None:
        self.resource = resource
        self._collection = _Collection(api, resource, namespace, trim)
        self._informer = SharedInformer(self._collection.list, label_selector=label_selector)
        for kind in (ADDED, MODIFIED, DELETED, "BOOKMARK"):
            self._informer.add_event_handler(kind, self._collection.record_version)
        for kind in (ADDED, MODIFIED):
            self._informer.add_event_handler(kind, trim)
            self._informer.add_event_handler(kind, changed)
        self._informer.add_event_handler(DELETED, removed)

    def start(self) -> None:
        """List and watch from now on."""
        self._informer.start()

    def stop(self) -> None:
        """End the thread."""
        self._collection.stopped.set()
        self._informer.stop()

    def wait_until_synced(self, timeout: float) -> bool:
        """Wait until the cache holds the first whole list; return whether it did within ``timeout`` seconds."""
        return self._collection.synced.wait(timeout)

    def get(self, namespace: str, name: str) -> Object | None:
        """Return the cached object; None if there is none."""
        found: Object | None = self._informer.cache.get_by_key(f"{namespace}/{name}")
        return found

    def all(self) -> list[Object]:
        """Return every cached object."""
        return list(self._informer.cache.list())

    @property
    def seconds_since_progress(self) -> float:
        """Seconds since the API server last answered a list or a watch, or sent an event."""
        return time.monotonic() - self._collection.progress_at

    @property
    def seconds_since_turn(self) -> float:
        """Seconds since the last answer or event, or the last failed attempt, which another one follows."""
        return time.monotonic() - max(self._collection.progress_at, self._collection.turned_at)


class _Collection:
    """The functions that SharedInformer calls to list and to watch.

    It keeps by itself the version from which a watch resumes. The official client would encode and decode every event
    once more for that, a third of the operator's processor time. To prevent it, `list` must not say what it returns.
    """

    def __init__(self, api: Api, resource: Resource, namespace: str | None, trim: Callable[[Object], None]) -> None:
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._trim = trim
        self._failures = 0
        self._version = ""
        self._watches = False
        self.progress_at = self.turned_at = time.monotonic()
        self.synced = threading.Event()
        self.stopped = threading.Event()

    def list(self, watch: bool = False, _preload_content: bool = True, **query: Any) -> Any:
        """Return every object of the collection, or a stream of their changes."""
        try:
            answer = self._watch(**query) if watch else self._list(**query)
        except RefusedError as refusal:
            self._pause()
            raise as_api_exception(refusal) from None
        except Unreachable:
            self._pause()
            raise
        finally:
            self.turned_at = time.monotonic()
        self._failures = 0
        self.progress_at = time.monotonic()
        return answer

    def record_version(self, seen: Object) -> None:
        """Keep the version of a watched object, to resume from it; a listed object is older than its list."""
        self.progress_at = time.monotonic()
        if self._watches:
            self._version = seen["metadata"]["resourceVersion"]

    def _watch(self, resource_version: str, label_selector: str | None = None) -> Any:
        self.synced.set()  # the official client has by now put the list into its cache, and called the handlers
        self._watches = True
        query = _query(resourceVersion=self._version, labelSelector=label_selector)
        query |= {"timeoutSeconds": WATCH_SECONDS, "allowWatchBookmarks": "true"}
        return self._api.watch(self._resource, self._namespace, read_timeout=WATCH_SECONDS + 15.0, **query)

    def _list(self, label_selector: str | None = None) -> SimpleNamespace:
        self._watches = False
        items: list[Object] = []
        for page in self._pages(label_selector):
            items += page["items"] or []
            self._version = page["metadata"]["resourceVersion"]
        return SimpleNamespace(items=items, metadata=SimpleNamespace(resource_version=self._version))

    def _pages(self, label_selector: str | None) -> Iterator[Object]:
        query = _query(labelSelector=label_selector, limit=PAGE_SIZE)
        while True:
            page = self._api.list(self._resource, self._namespace, self._trim, **query)
            yield page
            if not page["metadata"].get("continue"):
                return
            query["continue"] = page["metadata"]["continue"]

    def _pause(self) -> None:
        """Wait, twice as long each time, before the caller learns of a failure: it tries again at once."""
        self.stopped.wait(_BACKOFF.delay(self._failures))
        self._failures += 1


def _query(**parameters: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in parameters.items() if value is not None}


def _in_one_line(record: logging.LogRecord) -> bool:
    """Shorten a traceback to one line, which says as much of an unreachable server."""
    if record.exc_info:
        record.msg, record.args = f"{record.getMessage()}: {record.exc_info[1]}", ()
        record.exc_info = None
    return True
