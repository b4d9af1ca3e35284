"""Prometheus metrics of one monitor: base units, and labels bounded by the number of workers.

What is not measured is absent: a zero would be a network that carries nothing, in no time.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, disable_created_metrics, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from trimtab_api.errors import UserError
from trimtab_api.http_server import HttpServer
from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon.links import converters
from trimtab_netmon.settings import Endpoint

#: How bandwidth tests fail as a rule: a host has another test, iperf3 says no, a monitor is away or does not answer.
FAILURES = ("resource_exhausted", "failed_precondition", "unavailable", "deadline_exceeded")
#: Upper ends of the histogram's ranges of round trips, seconds.
ROUND_TRIPS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Metrics of one monitor, served at ``/metrics`` of its address.

    Args:
        worker: The monitor's worker, which links of its own leave.
        node: Name of its node; empty if it is not known.
        zone: Name of the node's zone; empty if it is not known.
    """

    def __init__(self, worker: int = 0, node: str = "", zone: str = "") -> None:
        self._worker = worker
        disable_created_metrics()  # type: ignore[no-untyped-call] # as many series again, which nobody asks for
        self.registry = CollectorRegistry()
        self._network = _PublishedNetwork(worker)
        self.registry.register(self._network)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"trimtab_netmon_{name}", text, labels, registry=self.registry)

        self.tests = counter("bandwidth_tests", "Bandwidth tests done; worker 0 counts them")
        self.test_seconds = counter(
            "bandwidth_test_seconds", "Time that bandwidth tests kept two hosts busy; worker 0 counts it"
        )
        self.test_bytes = counter(
            "bandwidth_test_bytes", "Bytes that bandwidth tests sent; worker 0 counts those of all workers"
        )
        self.failed_tests = counter(
            "failed_bandwidth_tests", "Bandwidth tests that did not happen, by reason", ("reason",)
        )
        for reason in FAILURES:  # a counter that appears with its first failure hides that failure
            self.failed_tests.labels(reason=reason)
        self.rounds = counter("measurement_rounds", "Times that every worker was measured out of turn")
        self._requests = counter("echoes", "Echo requests sent to each other worker", ("source", "target"))
        self._unanswered = counter(
            "unanswered_echoes", "Echo requests that were not answered within 10 s", ("source", "target")
        )
        self.round_trips = Histogram(
            "trimtab_netmon_round_trip_seconds",
            "Round trips of this monitor's echoes to all other workers",
            registry=self.registry,
            buckets=ROUND_TRIPS,
        )
        place = Info("trimtab_netmon_place", "Where this worker's monitor runs", registry=self.registry)
        place.info({"worker": str(worker), "node": node, "zone": zone})
        self._of_target: dict[int, tuple[Counter, Counter]] = {}

    def count_request(self, worker: int) -> None:
        """Count an echo request to a worker."""
        self._echoes(worker)[0].inc()

    def count_unanswered(self, worker: int) -> None:
        """Count an echo request to a worker that was not answered."""
        self._echoes(worker)[1].inc()

    def _echoes(self, worker: int) -> tuple[Counter, Counter]:
        """Return the counters of one link: requests, and those not answered. Both appear with the first request."""
        if worker not in self._of_target:
            labels = (str(self._worker), str(worker))
            self._of_target[worker] = self._requests.labels(*labels), self._unanswered.labels(*labels)
        return self._of_target[worker]

    def show(self, state: netmon_pb2.NetworkState) -> None:
        """Export a published state from now on: its summary, and the links that leave this worker."""
        self._network.state = state

    def serve(self, listen: Endpoint, port: int) -> None:
        """Serve the metrics from a thread.

        Raises:
            UserError: If the port is taken.
        """
        try:
            HttpServer(make_wsgi_app(self.registry), listen.host, port).start()
        except OSError as error:
            raise UserError(
                f"cannot listen there ({error.strerror}); stop what uses the port, or choose another",
                field="--metrics-port",
                value=f"{listen.host}:{port}",
            ) from None


class _PublishedNetwork(Collector):
    """The measurements of the newest state, as they are when Prometheus asks."""

    def __init__(self, worker: int) -> None:
        self.state = netmon_pb2.NetworkState()
        self._worker = worker

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
            if link.source != self._worker:
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
    """Return a gauge of the whole network; without a sample where there is no measurement."""
    return GaugeMetricFamily(f"trimtab_network_{name}", text, value=value or None)


def _of_link(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"trimtab_network_link_{name}", text, labels=("source", "target"))
