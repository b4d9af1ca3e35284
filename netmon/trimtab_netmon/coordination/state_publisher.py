"""The publication of the network's state by worker 0: its times and revisions."""

from __future__ import annotations

import time

from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon.coordination.merged_links import MergedLinks
from trimtab_netmon.links import converters
from trimtab_netmon.links.broadcast import Broadcast

#: Seconds between two states in which nothing has changed but the measurements' age.
HEARTBEAT = 5.0
#: Most bytes per second that worker 0 sends to report changes of single links.
TELLING_RATE = 1e6


class StatePublisher:
    """The publisher of states: the next one is due soon if links have changed, else as a heartbeat."""

    def __init__(self, published: Broadcast[netmon_pb2.NetworkState], num_workers: int) -> None:
        self._published = published
        self._num_workers = num_workers
        self._published_at = float("-inf")
        self._spacing = 0.0
        """Least seconds between two states in which only single links have changed."""
        self.has_unpublished = False
        """True if links have changed since the last state."""

    @property
    def last(self) -> netmon_pb2.NetworkState:
        """The state as last published."""
        return self._published.value

    def is_due(self, now: float) -> bool:
        """Return whether to publish a state whose summary is as before."""
        return now - self._published_at > (self._spacing if self.has_unpublished else HEARTBEAT)

    def publish(self, links: MergedLinks, problem: str) -> None:
        """Publish the state, with a new revision if links have changed; its size then spaces the next one.

        Args:
            links: All links, merged.
            problem: Why nothing new is measured; empty while tests succeed.
        """
        revision = self.last.revision + (1 if self.has_unpublished or self._num_workers == 1 else 0)
        states = list(links.states.values())
        state = converters.state_to_proto(revision, time.time(), self._num_workers, states, links.summary)
        state.problem = problem
        self._published_at, self.has_unpublished = time.monotonic(), False
        self._spacing = self._num_workers * state.ByteSize() / TELLING_RATE
        self._published.publish(state)
