"""A trainer's view of its network: the monitor beside it, watched in a thread that outlives a monitor's restarts.

::

    with watch("127.0.0.1:9400", on_change=print) as monitor:
        monitor.wait_until_measured(timeout=10)
        monitor.measure_now("step time rose by 40%", timeout=5)
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

import grpc

from trimtab_api.netmon.v1 import netmon_pb2, netmon_pb2_grpc
from trimtab_api.netmon.view import NOTHING_KNOWN, LinkView, NetworkView
from trimtab_api.rpc.certificates import Certificates
from trimtab_api.rpc.channels import format_grpc_error, open_channel

#: Seconds between attempts to reach a monitor that does not answer.
_RETRY_SECONDS = 0.2


class NetworkWatch:
    """The newest `NetworkView`, kept current by a thread until `close`; `watch` makes it."""

    def __init__(
        self, address: str, on_change: Callable[[NetworkView], None] | None, certificates: Certificates | None
    ) -> None:
        self._view = NOTHING_KNOWN
        self._on_change = on_change
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._channel = open_channel(address, certificates)
        self._stub = netmon_pb2_grpc.NetworkMonitorStub(self._channel)
        self._thread = threading.Thread(target=self._follow, name="network-watch", daemon=True)
        self._thread.start()

    @property
    def view(self) -> NetworkView:
        """The newest view; `NOTHING_KNOWN` before the monitor first answers."""
        return self._view

    @property
    def problem(self) -> str:
        """The reason why nothing new is measured, in one sentence; empty while tests succeed, and at first."""
        return self._view.problem

    def wait_until_measured(self, timeout: float) -> NetworkView:
        """Wait for the first view with both figures; after ``timeout`` seconds, return the newest as it is."""
        with self._changed:
            self._changed.wait_for(lambda: self._view.is_measured, timeout)
        return self._view

    def measure_now(self, reason: str, timeout: float) -> NetworkView | None:
        """Ask for a measurement of the bandwidth out of turn, for up to ``timeout`` seconds; None: not measured.

        Nothing is measured if the monitors' probe budget is spent, a periodic probe has just ended, no link could be
        tested, or they do not answer in time. Call it from a thread that training does not wait for.
        """
        try:
            state = self._stub.MeasureNow(netmon_pb2.MeasureNowRequest(reason=reason), timeout=timeout)
        except grpc.RpcError:
            return None
        return None if state.not_measured and not state.measured else _view_of(state)

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._channel.close()
        self._thread.join(timeout=5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _follow(self) -> None:
        while not self._closed.is_set():
            try:
                for state in self._stub.WatchNetworkState(netmon_pb2.WatchNetworkStateRequest()):
                    self._publish(_view_of(state))
            except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed under us
                self._publish(replace(self._view, stale=True, problem=format_grpc_error(error)))
            self._closed.wait(_RETRY_SECONDS)

    def _publish(self, view: NetworkView) -> None:
        if self._closed.is_set():
            return
        if view == self._view:
            self._view = view  # confirmed: as it was, but younger
            return
        with self._changed:
            self._view = view
            self._changed.notify_all()
        if self._on_change is not None:
            self._on_change(view)


def watch(
    address: str, on_change: Callable[[NetworkView], None] | None = None, certificates: Certificates | None = None
) -> NetworkWatch:
    """Follow the monitor at ``address`` and return at once, whether or not the monitor is up yet.

    Args:
        address: ``HOST:PORT``.
        on_change: Called from the watching thread with every new view, also when the monitor stops answering
            (``stale``).
        certificates: None: those of the environment.

    Raises:
        UserError: If the job's certificates cannot be used.
    """
    return NetworkWatch(address, on_change, certificates)


def _view_of(state: netmon_pb2.NetworkState) -> NetworkView:
    """Convert a state; a figure that is no number, or cannot be one, becomes none."""
    summary, now = state.summary, time.monotonic()
    latency, bandwidth = _magnitude(summary.latency_seconds), _magnitude(summary.bandwidth_bytes_per_second)
    is_known = state.num_workers == 1 or (latency > 0 and bandwidth > 0)
    return NetworkView(
        revision=state.revision,
        latency=latency,
        bandwidth=bandwidth,
        stale=summary.stale or not is_known,
        bandwidth_lower_bound=summary.bandwidth_lower_bound,
        bandwidth_method=_METHODS.get(summary.bandwidth_method, ""),
        latency_since=now - _magnitude(summary.latency_age_seconds) if latency > 0 else -math.inf,
        bandwidth_since=now - _magnitude(summary.bandwidth_age_seconds) if bandwidth > 0 else -math.inf,
        problem=state.problem,
        links=tuple(map(_link_of, state.links)),
    )


def _link_of(link: netmon_pb2.Link) -> LinkView:
    return LinkView(
        link.source,
        link.target,
        latency=_magnitude(link.latency.value),
        bandwidth=_magnitude(link.bandwidth.value),
        latency_stale=link.latency.stale,
        bandwidth_stale=link.bandwidth.stale,
    )


_METHODS = {
    netmon_pb2.METHOD_IPERF3: "iperf3",
    netmon_pb2.METHOD_IPERF3_SHARED: "iperf3 beside traffic",
    netmon_pb2.METHOD_NATIVE: "native",
    netmon_pb2.METHOD_NATIVE_SHARED: "native beside traffic",
}


def _magnitude(value: float) -> float:
    return value if 0 < value < math.inf else 0.0
