"""Delta encoding of network states: a reader is sent only the links that have changed.

A state of N workers has N (N - 1) links, and worker 0 tells N - 1 monitors. Between two states few links differ in what
a reader acts on, so those alone are sent; a whole state now and then brings what drifts (jitter, queueing, times).
"""

from __future__ import annotations

from trimtab_api.netmon.v1 import netmon_pb2

#: Seconds between two whole states of one watch.
WHOLE_EVERY = 10.0


class StateSender:
    """The sending side of one watch, which knows its reader's state. Times are seconds by any one clock."""

    def __init__(self) -> None:
        self._known: netmon_pb2.NetworkState | None = None
        self._sent_at = self._whole_sent_at = 0.0

    def message(self, state: netmon_pb2.NetworkState, now: float) -> netmon_pb2.NetworkState:
        """Return the message that gives the reader ``state``: the whole of it, or the difference."""
        known, elapsed = self._known, now - self._sent_at
        self._known, self._sent_at = state, now
        if known is None or not _same_links(known, state) or now - self._whole_sent_at >= WHOLE_EVERY:
            self._whole_sent_at = now
            return state
        return netmon_pb2.NetworkState(
            revision=state.revision,
            published_at_unix_seconds=state.published_at_unix_seconds,
            num_workers=state.num_workers,
            links=[new for old, new in zip(known.links, state.links, strict=True) if _differs_materially(old, new)],
            summary=state.summary,
            partial=True,
            seconds_since_last=elapsed,
            problem=state.problem,
        )


class StateReader:
    """The reading side of one watch."""

    def __init__(self) -> None:
        self._known: netmon_pb2.NetworkState | None = None

    def merge(self, message: netmon_pb2.NetworkState) -> netmon_pb2.NetworkState | None:
        """Return the whole state after a message; None if a delta has no state to build on."""
        if not message.partial:
            self._known = message
            return message
        if self._known is None:
            return None
        changed = {(link.source, link.target): link for link in message.links}
        elapsed = max(0.0, message.seconds_since_last)
        whole = netmon_pb2.NetworkState()
        whole.CopyFrom(message)
        whole.ClearField("partial")
        whole.ClearField("seconds_since_last")
        del whole.links[:]
        for link in self._known.links:
            new = changed.get((link.source, link.target))
            whole.links.append(_aged(link, elapsed) if new is None else new)
        self._known = whole
        return whole


def _same_links(a: netmon_pb2.NetworkState, b: netmon_pb2.NetworkState) -> bool:
    return len(a.links) == len(b.links) and all(
        (x.source, x.target) == (y.source, y.target) for x, y in zip(a.links, b.links, strict=True)
    )


def _differs_materially(old: netmon_pb2.Link, new: netmon_pb2.Link) -> bool:
    """Return whether a reader would act on the difference: published values stand until they move materially."""
    return old.silent != new.silent or any(
        (a.value, a.method, a.stale, a.lower_bound) != (b.value, b.method, b.stale, b.lower_bound)
        for a, b in ((old.latency, new.latency), (old.bandwidth, new.bandwidth))
    )


def _aged(link: netmon_pb2.Link, seconds: float) -> netmon_pb2.Link:
    older = netmon_pb2.Link()
    older.CopyFrom(link)
    for measurement in (older.latency, older.bandwidth):
        if measurement.value > 0:
            measurement.age_seconds += seconds
    return older
