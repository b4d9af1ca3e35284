"""The emulator's promise, with every host sending all it can and every core kept busy: docs/benchmarks."""

import pytest
from all_hosts_send import measure, steady
from kit.validated_network import PATIENCE, on_a_network
from trimtab_api.units import parse_bandwidth, parse_duration
from trimtab_netmon.emulate import Emulator


@pytest.mark.namespaces
@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(600 + PATIENCE)
@pytest.mark.parametrize(
    ("hosts", "latency", "bandwidth"), [(4, "1ms", "1Gbps"), (4, "25ms", "1Gbps"), (8, "1ms", "200Mbps")]
)
def test_latency_and_bandwidth_are_as_set(hosts: int, latency: str, bandwidth: str):
    def check(network: Emulator):
        figures = measure(network)
        round_trip = pytest.approx(2 * parse_duration(latency), rel=0.1, abs=1e-3)
        each_host = pytest.approx(parse_bandwidth(bandwidth), rel=0.1)
        assert figures.ping_idle == round_trip
        assert figures.ping_full == round_trip
        assert figures.slowest == each_host
        assert figures.fastest == each_host

    on_a_network(steady(latency, bandwidth), hosts, check)
