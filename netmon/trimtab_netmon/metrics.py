"""Prometheus metrics of one monitor: base units, and labels bounded by the number of workers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from trimtab_api.errors import UserError
from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon.settings import Endpoint


class Metrics:
    """What one monitor counts; served at ``/metrics`` of its address."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        link = ("source", "target")

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"trimtab_network_{name}", text, labels, registry=self.registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"trimtab_netmon_{name}", text, labels, registry=self.registry)

        self.latency = gauge("latency_seconds", "One-way latency of the slowest link")
        self.bandwidth = gauge("bandwidth_bytes_per_second", "Bandwidth of the slowest link")
        self.stale = gauge("stale", "1 if the figures of the slowest link are too old to trust")
        self.revision = gauge("revision", "Revision of the published network state")
        self.link_latency = gauge("link_latency_seconds", "One-way latency of links from this worker", link)
        self.link_bandwidth = gauge("link_bandwidth_bytes_per_second", "Bandwidth of links from this worker", link)
        self.link_queueing = gauge("link_queueing_seconds", "Median queueing delay of links from this worker", link)
        self.tests = counter("bandwidth_tests", "Bandwidth tests done (worker 0 counts them)")
        self.test_seconds = counter("bandwidth_test_seconds", "Time that bandwidth tests kept two hosts busy")
        self.failed_tests = counter("failed_bandwidth_tests", "Bandwidth tests that did not happen", ("reason",))
        self.rounds = counter("measurement_rounds", "Times that every worker was measured out of turn")

    def show(self, state: netmon_pb2.NetworkState, worker: int) -> None:
        """Bring the gauges up to date with a published state."""
        self.latency.set(state.summary.latency_seconds)
        self.bandwidth.set(state.summary.bandwidth_bytes_per_second)
        self.stale.set(state.summary.stale)
        self.revision.set(state.revision)
        for each in state.links:
            if each.source == worker:
                labels = (str(each.source), str(each.target))
                self.link_latency.labels(*labels).set(each.latency.value)
                self.link_bandwidth.labels(*labels).set(each.bandwidth.value)
                self.link_queueing.labels(*labels).set(each.queueing_seconds)

    def serve(self, listen: Endpoint, port: int) -> None:
        """Serve them from a thread. Raises `UserError` where the port is taken."""
        try:
            start_http_server(port, listen.host, self.registry)
        except OSError as error:
            raise UserError(
                f"cannot listen there ({error.strerror}); stop what uses the port, or choose another",
                field="--metrics-port",
                value=f"{listen.host}:{port}",
            ) from None
