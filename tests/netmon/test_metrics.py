"""What Prometheus is told, and what it is not."""

import itertools
import math
import time

from prometheus_client import generate_latest
from trimtab_api.netmon.v1 import netmon_pb2
from trimtab_netmon.links import converters
from trimtab_netmon.links.measurements import LinkState, Measurement, Method, Summary
from trimtab_netmon.metrics import Metrics


def samples(links, summary, worker=0):
    metrics = Metrics(worker)
    metrics.show(converters.state_to_proto(3, time.time(), 3, links, summary))
    return exported(metrics)


def exported(metrics):
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
    metrics.show(state)
    told = [value for name, value in exported(metrics).items() if name.startswith("trimtab_network")]
    assert all(map(math.isfinite, told))


def test_series_are_bounded_by_the_number_of_workers():
    workers = 32
    bandwidth = Measurement(125e6, Method.IPERF3_SHARED, 1.0, age=42.0)
    latency = Measurement(0.001, Method.UDP_ECHO)
    links = [LinkState(*pair, latency, bandwidth) for pair in itertools.permutations(range(workers), 2)]
    metrics = Metrics()
    metrics.show(converters.state_to_proto(3, time.time(), workers, links, Summary(0.001, 125e6, 0.0, False)))
    for target in range(1, workers):
        metrics.count_request(target)
    told = exported(metrics)
    assert 7 * (workers - 1) < len(told) <= 50 + 7 * (workers - 1)


def test_lost_echoes_are_counted_for_each_link_and_round_trips_for_the_monitor():
    metrics = Metrics(worker=1)
    for _ in range(3):
        metrics.count_request(2)
    metrics.count_unanswered(2)
    metrics.round_trips.observe(0.004)
    told = exported(metrics)
    assert told['trimtab_netmon_echoes_total{source="1",target="2"}'] == 3
    assert told['trimtab_netmon_unanswered_echoes_total{source="1",target="2"}'] == 1
    assert told['trimtab_netmon_round_trip_seconds_bucket{le="0.0025"}'] == 0
    assert told['trimtab_netmon_round_trip_seconds_bucket{le="0.005"}'] == 1


def test_a_link_without_losses_has_a_zero_counter():
    metrics = Metrics(worker=1)
    metrics.count_request(0)
    assert exported(metrics)['trimtab_netmon_unanswered_echoes_total{source="1",target="0"}'] == 0


def test_node_and_zone_are_exported_once():
    told = exported(Metrics(3, node="node-7", zone="eu-1a"))
    assert [name for name in told if "node-7" in name or "eu-1a" in name] == [
        'trimtab_netmon_place_info{node="node-7",worker="3",zone="eu-1a"}'
    ]
