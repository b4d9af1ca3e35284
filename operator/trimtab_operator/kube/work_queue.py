"""The work queue: each key at most once and with one worker at a time; failed keys return after growing delays.

A key is ``namespace/name``.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from trimtab_api.throttling import Backoff

#: Seconds before the first repetition of what failed; doubled each time, up to the longest.
FIRST_DELAY = 0.25
LONGEST_DELAY = 60.0
_BACKOFF = Backoff(FIRST_DELAY, LONGEST_DELAY)
#: At least one of so many keys handed out is a normal one, if any waits, so that urgent keys cannot starve them.
KEYS_PER_NORMAL = 8


class _Line:
    """Waiting keys in the order of arrival; namespaces take turns, so that none waits for another's many."""

    def __init__(self) -> None:
        self._by_namespace: OrderedDict[str, OrderedDict[str, float]] = OrderedDict()
        """When each key came, by namespace; the namespace whose turn it is comes first, and none is empty."""
        self._count = 0

    def __contains__(self, key: str) -> bool:
        return key in self._by_namespace.get(_namespace(key), ())

    def __len__(self) -> int:
        """Return the number of keys that could be handed out now."""
        return self._count

    @property
    def first_came_at(self) -> float:
        """The arrival of the key that has waited longest; infinite if none waits."""
        return min((next(iter(keys.values())) for keys in self._by_namespace.values()), default=float("inf"))

    def add(self, key: str, came_at: float) -> None:
        """Add a key that is not there."""
        self._by_namespace.setdefault(_namespace(key), OrderedDict())[key] = came_at
        self._count += 1

    def remove(self, key: str) -> float | None:
        """Remove a key; return when it came, or None if it is not there."""
        keys = self._by_namespace.get(_namespace(key), OrderedDict())
        if key not in keys:
            return None
        came_at = keys.pop(key)
        if not keys:
            del self._by_namespace[_namespace(key)]
        self._count -= 1
        return came_at

    def take(self) -> str:
        """Remove the key whose turn it is, and return it."""
        namespace, keys = next(iter(self._by_namespace.items()))
        key = next(iter(keys))
        self.remove(key)
        if namespace in self._by_namespace:
            self._by_namespace.move_to_end(namespace)
        return key


def _namespace(key: str) -> str:
    return key.partition("/")[0]


class WorkQueue:
    """Keys to reconcile. Every method may be called from any thread.

    A key that is added while it waits is there once. A key that is added while a worker processes it comes back when
    the worker is done, since what the worker saw may have been old. Urgent keys are handed out before the others. Among
    either, namespaces take turns.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._ready = _Line()
        """Keys to hand out."""
        self._urgent = _Line()
        """Keys to hand out before those; none is in both."""
        self._urgent_in_a_row = 0
        self._held: dict[str, bool] = {}
        """Keys that workers are processing; True: added again meanwhile."""
        self._later: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        """When each delayed key is due; an entry of the heap that says otherwise is void."""
        self._failures: dict[str, int] = {}
        self._closed = False
        self._opened_at: float | None = None
        """When a key was first asked for; None while nobody does, as in an operator that does not lead."""

    def add(self, key: str, urgent: bool = False) -> None:
        """Have the key processed as soon as possible."""
        with self._changed:
            self._add(key, urgent)
            self._changed.notify()

    def add_later(self, key: str, seconds: float) -> None:
        """Have the key processed after a delay, or sooner if it is already due sooner."""
        with self._changed:
            due = self._clock() + seconds
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._later, (due, key))
                self._changed.notify()

    def get(self) -> str | None:
        """Wait for the next key and return it; None once the queue is closed.

        The caller must call `done` or `failed`.
        """
        with self._changed:
            if self._opened_at is None:
                self._opened_at = self._clock()
            while not self._closed:
                self._move_due()
                if self._ready or self._urgent:
                    key = self._take()
                    self._held[key] = False
                    return key
                self._changed.wait(self._seconds_to_next())
            return None

    def done(self, key: str) -> None:
        """Release a key that was processed; its failures are forgotten."""
        with self._changed:
            self._failures.pop(key, None)
            self._release(key)

    def failed(self, key: str) -> float:
        """Release a key whose processing failed; it comes back after the returned delay, in seconds."""
        with self._changed:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            delay = _BACKOFF.delay(failures)
            self._release(key)
        self.add_later(key, delay)
        return delay

    def close(self) -> None:
        """Hand out nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """Keys that could be handed out now."""
        with self._changed:
            self._move_due()
            return len(self._ready) + len(self._urgent)

    @property
    def longest_wait(self) -> float:
        """Seconds that the first key has waited since keys were first asked for; 0 if none waits, or nobody asks."""
        with self._changed:
            first = min(self._ready.first_came_at, self._urgent.first_came_at)
            if first == float("inf") or self._opened_at is None:
                return 0.0
            return self._clock() - max(first, self._opened_at)

    def _take(self) -> str:
        """Remove and return the key to hand out next."""
        urgent = bool(self._urgent) and (not self._ready or self._urgent_in_a_row < KEYS_PER_NORMAL - 1)
        self._urgent_in_a_row = self._urgent_in_a_row + 1 if urgent else 0
        return (self._urgent if urgent else self._ready).take()

    def _add(self, key: str, urgent: bool = False) -> None:
        if key in self._held:
            self._held[key] = True
        elif urgent and key not in self._urgent:
            came_at = self._ready.remove(key)
            self._urgent.add(key, self._clock() if came_at is None else came_at)
        elif key not in self._ready and key not in self._urgent:
            self._ready.add(key, self._clock())

    def _release(self, key: str) -> None:
        if self._held.pop(key):
            self._add(key)
            self._changed.notify()

    def _move_due(self) -> None:
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            due, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self._add(key)
                self._changed.notify()

    def _seconds_to_next(self) -> float | None:
        return max(0.0, self._later[0][0] - self._clock()) if self._later else None
