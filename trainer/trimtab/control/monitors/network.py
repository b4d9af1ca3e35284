"""The present network: tells a change of it from the noise of its measurement."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from statistics import median

from trimtab_api.netmon.view import NetworkView

#: Views that the present estimate is the median of.
_WINDOW = 15
#: Views that must agree on a small change before it is one. With noise of 3% two or three of them lie past 10% by
#: chance, since the estimate that they differ from is itself noisy.
_AGREEING = 5
#: A change this many times the threshold is no noise: two views will do.
_PLAIN = 2.0
#: A lone view that differs plainly is believed after this long, unless the job's own exchanges speak against it.
_PERSISTENCE_SECONDS = 1.0
#: One that differs little: by then a monitor has tested the bandwidth again, and little is lost meanwhile.
_SMALL_PERSISTENCE_SECONDS = 10.0
#: An exchange tells two networks apart when it fits one better by this factor.
_TELLING = log(1.15)
#: No network is slower than these [seconds one way, bytes per second], or faster than that: a monitor that tells so is
#: broken, and models of the network by such figures would be as well.
_SLOWEST, _MOST_BANDWIDTH = (60.0, 100.0), 1e14
#: Spread (in log) of a noisy monitor beyond which its readings are no excuse any more.
_MOST_NOISE = 0.5


@dataclass(frozen=True)
class Network:
    """The network as the controller believes it to be."""

    revision: int
    latency: float
    bandwidth: float

    @property
    def beta(self) -> float:
        """Seconds per byte."""
        return 1 / self.bandwidth

    def distance(self, other: Network) -> float:
        """Return the larger of the two relative changes, as a logarithm."""
        return max(abs(log(self.latency / other.latency)), abs(log(self.bandwidth / other.bandwidth)))


#: Stands in a record where no view ever came.
UNKNOWN_NETWORK = Network(0, 1e-6, 1e12)


@dataclass(frozen=True)
class NetworkChange:
    """The network is no longer what it was taken for."""

    before: Network
    confirmed_at: float
    """Time at which a view last agreed with `before`: what was measured since may be of either."""


def speaks_for(measured: float, expected: float, suspected: float) -> bool | None:
    """Return whether an exchange fits the suspected network better than the present one; None if it fits both alike.

    Args:
        measured: Seconds that the exchange took.
        expected: Seconds predicted on the present network.
        suspected: Seconds predicted on the suspected network.
    """
    expected_misses, suspected_misses = (abs(log(measured / seconds)) for seconds in (expected, suspected))
    if abs(expected_misses - suspected_misses) < _TELLING:
        return None
    return suspected_misses < expected_misses


def _is_believable(view: NetworkView) -> bool:
    most_latency, least_bandwidth = _SLOWEST
    return 0 < view.latency <= most_latency and least_bandwidth <= view.bandwidth <= _MOST_BANDWIDTH


@dataclass
class _Suspect:
    """Views in a row that differ from the estimate and not from each other."""

    first: Network
    since: float
    last: Network
    agreed: int = 1


class NetworkEstimator:
    """Tells a change of the network from the noise of its measurement.

    The estimate is the median of the last views. A view that lies farther from it than ``change`` (and than three
    times the views' own spread) is a suspect. One that lies far becomes the network when the next one agrees, when the
    job's own exchange times agree, or when it has stood unopposed for a second; one that lies near, when four more
    measurements agree, or unopposed for ten seconds. A stale view is ignored.
    """

    def __init__(self, change: float) -> None:
        self._change = log(1 + change)
        self._views: deque[Network] = deque(maxlen=_WINDOW)
        self._suspect: _Suspect | None = None
        self._reference: Network | None = None
        """The network that the present plan was chosen for."""
        self._views_since = 0
        self._moved_at: float | None = None
        """Time since which the estimate has been another network than that; None while it is not."""
        self._confirmed_at = float("-inf")
        """Time at which a view last agreed with the estimate, or became it."""

    @property
    def network(self) -> Network | None:
        """The present estimate; None before the first view."""
        if not self._views:
            return None
        return Network(
            self._views[-1].revision,
            median(view.latency for view in self._views),
            median(view.bandwidth for view in self._views),
        )

    @property
    def suspect(self) -> Network | None:
        """A view that differs and is not believed yet."""
        return self._suspect.first if self._suspect else None

    def decided(self) -> None:
        """Take the present estimate as the network that a plan was chosen for.

        If there is no estimate yet, the first view counts as a move.
        """
        self._reference, self._views_since, self._moved_at = self.network, 0, None

    def has_moved(self, now: float) -> bool:
        """Return whether the network is another than a plan was chosen for: by a change, or by a drift that has lasted.

        True before any plan was chosen, once there is a network.
        """
        if self._reference is None:
            return bool(self._views)
        return self._moved_at is not None and now - self._moved_at >= _SMALL_PERSISTENCE_SECONDS

    def observe(self, view: NetworkView, now: float) -> NetworkChange | None:
        """Take a view, and return the change if it makes one. The first view makes none."""
        if view.stale or not _is_believable(view):
            return None
        seen = Network(view.revision, view.latency, view.bandwidth)
        present = self.network
        if present is None:
            return self._become(seen, now)
        if not self._differs(seen, present):
            self._views.append(seen)
            self._suspect = None
            self._confirmed_at = now
            self._compare_with_reference(now)
            return None
        suspect = self._suspect
        if suspect is None or self._differs(seen, suspect.first):
            self._suspect = _Suspect(seen, now, last=seen)
            return None
        suspect.agreed += self._is_measured_anew(seen, suspect.last, present)
        suspect.last = seen
        if suspect.agreed >= _AGREEING or seen.distance(present) > _PLAIN * self._change:
            return self._become(seen, now)
        return None

    def accept(self, now: float, agrees: Callable[[Network], bool | None]) -> NetworkChange | None:
        """Believe a plain suspect if the job's exchange times agree, and any that they do not contradict for long.

        Args:
            now: Seconds.
            agrees: Answers whether the exchange times fit a network; None if they cannot tell.

        Returns:
            The change, if the suspect is believed.
        """
        if self._suspect is None:
            return None
        seen, since = self._suspect.first, self._suspect.since
        present = self.network
        verdict = agrees(seen)
        if present is None or seen.distance(present) > _PLAIN * self._change:
            is_believed = verdict is True or (verdict is None and now - since >= _PERSISTENCE_SECONDS)
        else:  # so little that a few exchanges cannot tell it from their own noise
            is_believed = verdict is not False and now - since >= _SMALL_PERSISTENCE_SECONDS
        return self._become(seen, now) if is_believed else None

    def state_dict(self) -> list[list[float]]:
        """Return the views behind the estimate, as JSON data."""
        return [[view.revision, view.latency, view.bandwidth] for view in self._views]

    def load_state_dict(self, state: list[list[float]]) -> None:
        """Inverse of `state_dict`."""
        self._views = deque((Network(int(r), latency, bandwidth) for r, latency, bandwidth in state), maxlen=_WINDOW)
        self._suspect = None

    def _is_measured_anew(self, seen: Network, before: Network, present: Network) -> bool:
        """Return whether a figure by which a suspect differs was measured since the view before.

        A view repeats the figures that were not.
        """
        return any(
            abs(log(new / was)) > self._change and new != old
            for new, old, was in (
                (seen.latency, before.latency, present.latency),
                (seen.bandwidth, before.bandwidth, present.bandwidth),
            )
        )

    def _compare_with_reference(self, now: float) -> None:
        present = self.network
        assert present is not None
        self._views_since += 1
        if self._reference is None:
            return
        if self._differs(present, self._reference):
            self._moved_at = now if self._moved_at is None else self._moved_at
            return
        self._moved_at = None
        if self._views_since <= _WINDOW:
            # A plan is often chosen after a view or two; those that follow soon tell better what network that was.
            self._reference = present

    def _become(self, seen: Network, now: float) -> NetworkChange | None:
        before = self.network
        change = None if before is None else NetworkChange(before, self._confirmed_at)
        self._views.clear()
        self._views.append(seen)
        self._suspect = None
        self._confirmed_at = now
        if self._reference is not None:
            self._moved_at = float("-inf") if self._differs(seen, self._reference) else None
        return change

    def _differs(self, seen: Network, present: Network) -> bool:
        latencies = [log(view.latency) for view in self._views]
        bandwidths = [log(view.bandwidth) for view in self._views]
        return abs(log(seen.latency / present.latency)) > max(self._change, 3 * _spread(latencies)) or abs(
            log(seen.bandwidth / present.bandwidth)
        ) > max(self._change, 3 * _spread(bandwidths))


def _spread(logs: list[float]) -> float:
    """Return a robust standard deviation; 0 if there are too few values to tell."""
    if len(logs) < 4:
        return 0.0
    middle = median(logs)
    return min(_MOST_NOISE, 1.48 * median(abs(value - middle) for value in logs))
