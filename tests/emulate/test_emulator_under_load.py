"""The emulator's promise, with every host sending all it can and every core kept busy; see docs/measurements."""

import pytest
from measure_emulator import measure
from trimtab_api.units import parse_bandwidth, parse_duration


@pytest.mark.namespaces
@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "latency", "bandwidth"), [(4, "1ms", "1Gbps"), (4, "25ms", "1Gbps"), (8, "1ms", "200Mbps")]
)
def test_latency_and_bandwidth_are_as_set(hosts: int, latency: str, bandwidth: str):
    figures = measure(hosts, parse_duration(latency), parse_bandwidth(bandwidth))
    round_trip = pytest.approx(2 * parse_duration(latency), rel=0.1, abs=1e-3)
    each_host = pytest.approx(parse_bandwidth(bandwidth), rel=0.1)
    assert figures.ping_idle == round_trip, figures.report.describe()
    assert figures.ping_full == round_trip, figures.report.describe()
    assert figures.slowest == each_host, figures.report.describe()
    assert figures.fastest == each_host, figures.report.describe()
