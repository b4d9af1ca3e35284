"""Prometheus metrics of one monitor: base units, and labels bounded by the number of workers.

What is not measured is absent: a zero would be a network that carries nothing, in no time.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from trimtab_api.errors import UserError
from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon import converters
from trimtab_netmon.settings import Endpoint

#: How bandwidth tests fail as a rule: a host has another test, iperf3 says no, a monitor is away or does not answer.
FAILURES = ("resource_exhausted", "failed_precondition", "unavailable", "deadline_exceeded")


class Metrics:
    """What one monitor counts; served at ``/metrics`` of its address."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # as many series again, which nobody asks for
        self.registry = CollectorRegistry()
        self._network = _PublishedNetwork()
        self.registry.register(self._network)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"trimtab_netmon_{name}", text, labels, registry=self.registry)

        self.tests = counter("bandwidth_tests", "Bandwidth tests done; worker 0 counts them")
        self.test_seconds = counter(
            "bandwidth_test_seconds", "Time that bandwidth tests kept two hosts busy; worker 0 counts it"
        )
        self.failed_tests = counter(
            "failed_bandwidth_tests", "Bandwidth tests that did not happen, by reason", ("reason",)
        )
        for reason in FAILURES:  # a counter that appears with its first failure hides that failure
            self.failed_tests.labels(reason=reason)
        self.rounds = counter("measurement_rounds", "Times that every worker was measured out of turn")

    def show(self, state: netmon_pb2.NetworkState, worker: int) -> None:
        """Tell of a published state from now on: of all of it in one, and of the links that leave ``worker``."""
        self._network.state, self._network.worker = state, worker

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


class _PublishedNetwork(Collector):
    """The measurements of the newest state, as they are when Prometheus asks."""

    def __init__(self) -> None:
        self.state = netmon_pb2.NetworkState()
        self.worker = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        summary = self.state.summary
        which = "of the slowest link, which synchronous training waits for"
        yield _gauge("latency_seconds", f"One-way latency {which}", converters.magnitude(summary.latency_seconds))
        bandwidth = converters.magnitude(summary.bandwidth_bytes_per_second)
        yield _gauge("bandwidth_bytes_per_second", f"Bandwidth {which}", bandwidth)
        text = "1: the slowest link's figures are missing, or not to be trusted"
        yield GaugeMetricFamily("trimtab_network_stale", text, value=float(summary.stale))
        text = "Revision of the published network state; more with every change"
        yield GaugeMetricFamily("trimtab_network_revision", text, value=self.state.revision)
        yield from self._of_links()

    def _of_links(self) -> Iterator[GaugeMetricFamily]:
        latency = _of_link("latency_seconds", "One-way latency of each link from this worker")
        text = "Median delay over the latency of each link from this worker: mostly the job's own traffic"
        queueing = _of_link("queueing_seconds", text)
        bandwidth = _of_link("bandwidth_bytes_per_second", "Bandwidth of each link from this worker")
        age = _of_link("bandwidth_age_seconds", "How old the bandwidth was when it was published")
        stale = _of_link("bandwidth_stale", "1: the bandwidth is not to be trusted")
        for link in self.state.links:
            if link.source != self.worker:
                continue
            labels = [str(link.source), str(link.target)]
            if converters.magnitude(link.latency.value):
                latency.add_metric(labels, link.latency.value)
                queueing.add_metric(labels, converters.magnitude(link.queueing_seconds))
            if converters.magnitude(link.bandwidth.value):
                bandwidth.add_metric(labels, link.bandwidth.value)
                age.add_metric(labels, converters.magnitude(link.bandwidth.age_seconds))
                stale.add_metric(labels, float(link.bandwidth.stale))
        yield from (latency, queueing, bandwidth, age, stale)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    """A gauge of the whole network; without a sample where there is no measurement."""
    return GaugeMetricFamily(f"trimtab_network_{name}", text, value=value or None)


def _of_link(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"trimtab_network_link_{name}", text, labels=("source", "target"))
