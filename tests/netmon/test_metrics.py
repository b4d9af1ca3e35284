"""What Prometheus is told, and what it is not."""

import itertools
import time

from prometheus_client import generate_latest
from trimtab_api.netmon.v1 import netmon_pb2
from trimtab_netmon import converters
from trimtab_netmon.measurements import LinkState, Measurement, Method, Summary
from trimtab_netmon.metrics import Metrics


def samples(links, summary, worker=0):
    metrics = Metrics()
    metrics.show(converters.state_to_proto(3, time.time(), 3, links, summary), worker)
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_what_is_not_measured_is_absent_and_never_zero():
    told = samples([LinkState(0, 1), LinkState(0, 2)], Summary())
    assert told["trimtab_network_stale"] == 1
    assert not [name for name in told if "latency" in name or "bandwidth_bytes" in name or "queueing" in name]


def test_before_anything_is_published_there_is_no_figure():
    lines = generate_latest(Metrics().registry).decode().splitlines()
    assert not [line for line in lines if line.startswith(("trimtab_network_latency", "trimtab_network_bandwidth"))]


def test_a_measurement_is_told_with_its_age_and_what_it_is_worth():
    bandwidth = Measurement(125e6, Method.IPERF3_SHARED, 1.0, stale=True, age=42.0, is_lower_bound=True)
    links = [LinkState(0, 1, Measurement(0.001, Method.UDP_ECHO), bandwidth), LinkState(0, 2), LinkState(1, 0)]
    told = samples(links, Summary(0.001, 125e6, 0.0, True))
    of_link = {name: value for name, value in told.items() if 'target="1"' in name}
    assert of_link == {
        'trimtab_network_link_latency_seconds{source="0",target="1"}': 0.001,
        'trimtab_network_link_queueing_seconds{source="0",target="1"}': 0.0,
        'trimtab_network_link_bandwidth_bytes_per_second{source="0",target="1"}': 125e6,
        'trimtab_network_link_bandwidth_age_seconds{source="0",target="1"}': 42.0,
        'trimtab_network_link_bandwidth_stale{source="0",target="1"}': 1.0,
    }
    assert not [name for name in told if 'target="2"' in name or 'source="1"' in name]


def test_a_measurement_that_is_no_number_is_not_told():
    metrics = Metrics()
    state = netmon_pb2.NetworkState()
    state.summary.bandwidth_bytes_per_second = float("inf")
    state.links.add(source=0, target=1).bandwidth.value = float("nan")
    metrics.show(state, 0)
    assert "inf" not in generate_latest(metrics.registry).decode().lower().replace("info", "")
    assert "nan" not in generate_latest(metrics.registry).decode().lower()


def test_a_monitor_has_at_most_30_series_and_5_of_each_link_of_its_own():
    workers = 32
    bandwidth = Measurement(125e6, Method.IPERF3_SHARED, 1.0, age=42.0)
    latency = Measurement(0.001, Method.UDP_ECHO)
    links = [LinkState(*pair, latency, bandwidth) for pair in itertools.permutations(range(workers), 2)]
    told = samples(links, Summary(0.001, 125e6, 0.0, False))
    assert 5 * (workers - 1) < len(told) <= 30 + 5 * (workers - 1)
