"""Messages of a newer monitor, or of one that means harm."""

import math
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab_api.netmon.client import _view_of, watch
from trimtab_api.netmon.v1 import netmon_pb2, netmon_pb2_grpc
from trimtab_api.rpc.channels import listen
from trimtab_netmon.links import converters
from trimtab_netmon.links.measurements import LinkState, Measurement, Method

anything = st.floats() | st.sampled_from([0.0, math.inf, -math.inf, math.nan])


@given(anything, st.integers(-(2**31), 2**31 - 1), anything, anything)
def test_no_measurement_of_a_peer_is_infinite_negative_or_not_a_number(value, method, age, jitter):
    table = netmon_pb2.LinkTable(source=1)
    link = table.links.add(source=1, target=0, jitter_seconds=jitter, queueing_seconds=value)
    link.latency.CopyFrom(netmon_pb2.Measurement(value=value, method=method, age_seconds=age))
    read = converters.links_from_proto(table, 1, 2)[1, 0]
    for each in (read.latency.value, read.latency.age, read.jitter, read.queueing):
        assert 0 <= each < math.inf
    assert read.latency.method is (Method(method) if method in range(4) else Method.NONE)


def test_a_worker_tells_of_its_own_links_alone():
    table = netmon_pb2.LinkTable(source=1)
    for source, target in [(1, 0), (0, 1), (2, 0), (1, 1), (1, 3), (1, 4_000_000_000)]:
        table.links.add(source=source, target=target).latency.value = 1.0
    assert list(converters.links_from_proto(table, 1, 3)) == [(1, 0)]


def test_the_bandwidth_of_a_table_is_not_believed():
    table = netmon_pb2.LinkTable(
        source=1, links=[converters.link_to_proto(LinkState(1, 0, bandwidth=Measurement(1e9)))]
    )
    assert converters.links_from_proto(table, 1, 2)[1, 0].bandwidth == Measurement()


@given(anything, anything)
def test_a_test_finds_a_bandwidth_or_nonsense(bandwidth, seconds):
    answer = netmon_pb2.TestBandwidthResponse(bandwidth_bytes_per_second=bandwidth, duration_seconds=seconds, method=77)
    if not (0 < bandwidth < math.inf and 0 <= seconds < math.inf):
        with pytest.raises(converters.MalformedReplyError, match="it answers"):
            converters.test_result_from_proto(answer)
        return
    measurement, spent, num_bytes = converters.test_result_from_proto(answer)
    assert 0 < measurement.value < math.inf
    assert 0 <= spent < math.inf
    assert 0 <= num_bytes < math.inf
    assert measurement.method is Method.NONE


@pytest.mark.parametrize("value", [math.inf, math.nan, -1.0])
def test_a_trainer_believes_no_such_measurement_either(value):
    summary = netmon_pb2.Summary(latency_seconds=0.001, bandwidth_bytes_per_second=value, bandwidth_method=9)
    view = _view_of(netmon_pb2.NetworkState(revision=1, num_workers=2, summary=summary))
    assert (view.bandwidth, view.stale, view.is_measured, view.bandwidth_method) == (0.0, True, False, "")


def test_a_trainer_hears_how_old_a_measurement_is_and_what_it_is_worth():
    summary = netmon_pb2.Summary(
        latency_seconds=0.001,
        bandwidth_bytes_per_second=125e6,
        bandwidth_age_seconds=3600,
        bandwidth_lower_bound=True,
        bandwidth_method=netmon_pb2.METHOD_IPERF3_SHARED,
    )
    view = _view_of(netmon_pb2.NetworkState(revision=1, num_workers=2, summary=summary))
    assert 3600 <= view.bandwidth_age < 3700
    assert view.bandwidth_lower_bound
    assert view.bandwidth_method == "iperf3 beside traffic"


def test_a_trainer_hears_which_link_is_measured_no_more():
    state = netmon_pb2.NetworkState(revision=1, num_workers=2)
    for source, is_stale in ((0, True), (1, False)):
        link = state.links.add(source=source, target=1 - source)
        link.latency.CopyFrom(netmon_pb2.Measurement(value=0.001, stale=not is_stale))
        link.bandwidth.CopyFrom(netmon_pb2.Measurement(value=125e6, stale=is_stale))
    told = [(link.bandwidth, link.bandwidth_stale, link.latency_stale) for link in _view_of(state).links]
    assert told == [(125e6, True, False), (125e6, False, True)]


@pytest.mark.parametrize(("measured", "not_measured", "is_measured"), [(4, 0, True), (3, 1, True), (0, 4, False)])
def test_a_measurement_that_measured_nothing_is_none(measured, not_measured, is_measured):
    class Monitor(netmon_pb2_grpc.NetworkMonitorServicer):
        def MeasureNow(self, request, context):  # noqa: N802 - as in the contract
            link = netmon_pb2.LinkName(source=0, target=1)
            summary = netmon_pb2.Summary(latency_seconds=0.001, bandwidth_bytes_per_second=1e6)
            return netmon_pb2.NetworkState(
                num_workers=2, summary=summary, measured=[link] * measured, not_measured=[link] * not_measured
            )

    server = grpc.server(ThreadPoolExecutor(4))
    netmon_pb2_grpc.add_NetworkMonitorServicer_to_server(Monitor(), server)
    port = listen(server, "127.0.0.1:0")
    server.start()
    with watch(f"127.0.0.1:{port}") as network:
        assert (network.measure_now("a test asks", timeout=20) is not None) == is_measured
    server.stop(None)
