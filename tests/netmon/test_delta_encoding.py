"""A watch that sends only what has changed: its reader has the same state as one that is sent all of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from trimtab_api.netmon.v1 import netmon_pb2
from trimtab_netmon.links.delta_encoding import WHOLE_EVERY, StateReader, StateSender

DRIFTING = ("jitter_seconds", "queueing_seconds")


def measurement(value: int, is_stale: bool, is_bound: bool, at: float) -> netmon_pb2.Measurement:
    return netmon_pb2.Measurement(
        value=value,
        method=netmon_pb2.METHOD_IPERF3,
        stale=is_stale,
        lower_bound=is_bound,
        measured_at_unix_seconds=1e9 + at,
        age_seconds=at,
    )


measurements = st.builds(
    measurement, st.integers(0, 3), st.booleans(), st.booleans(), st.floats(0, 100, allow_nan=False, width=32)
)
PAIRS = [(source, target) for source in range(3) for target in range(3) if source != target]


@st.composite
def states(draw: Any) -> tuple[float, netmon_pb2.NetworkState]:
    links = [
        netmon_pb2.Link(
            source=source,
            target=target,
            latency=draw(measurements),
            bandwidth=draw(measurements),
            jitter_seconds=draw(st.floats(0, 1, width=32)),
            silent=draw(st.booleans()),
        )
        for source, target in PAIRS[: draw(st.sampled_from([6, 6, 6, 5]))]
    ]
    summary = netmon_pb2.Summary(latency_seconds=draw(st.floats(0, 1, width=32)), stale=draw(st.booleans()))
    revision = draw(st.integers(0, 9))
    after = draw(st.floats(0, 6, width=32))
    return after, netmon_pb2.NetworkState(revision=revision, num_workers=3, links=links, summary=summary)


def settled(state: netmon_pb2.NetworkState) -> netmon_pb2.NetworkState:
    """Without what drifts between whole states."""
    copy = netmon_pb2.NetworkState()
    copy.CopyFrom(state)
    for link in copy.links:
        for name in DRIFTING:
            link.ClearField(name)
        for each in (link.latency, link.bandwidth):
            each.ClearField("age_seconds")
            each.ClearField("measured_at_unix_seconds")
    return copy


@given(st.lists(states(), min_size=1, max_size=12))
def test_a_reader_of_parts_has_what_is_published(published: list[tuple[float, netmon_pb2.NetworkState]]) -> None:
    sender, reader, now = StateSender(), StateReader(), 0.0
    whole_at = None
    for after, state in published:
        now += after
        message = sender.message(state, now)
        merged = reader.merge(message)
        assert merged is not None
        assert not merged.partial
        assert settled(merged) == settled(state)
        if not message.partial:
            whole_at = now
            assert merged == state
        assert whole_at is not None
        assert now - whole_at < WHOLE_EVERY


def of_workers(num_workers: int, bandwidth: float) -> netmon_pb2.NetworkState:
    """Every link alike, but the bandwidth of the first."""
    links = [
        netmon_pb2.Link(
            source=a, target=b, latency=measurement(1, False, False, 5.0), bandwidth=measurement(2, False, False, 7.0)
        )
        for a in range(num_workers)
        for b in range(num_workers)
        if a != b
    ]
    links[0].bandwidth.value = bandwidth
    return netmon_pb2.NetworkState(revision=1, num_workers=num_workers, links=links)


def test_one_link_that_moved_among_many_costs_little_and_the_others_age() -> None:
    sender, reader = StateSender(), StateReader()
    reader.merge(sender.message(of_workers(32, 2.0), 10.0))
    message = sender.message(of_workers(32, 9.0), 13.0)
    assert message.partial
    assert message.ByteSize() < of_workers(32, 9.0).ByteSize() / 100
    merged = reader.merge(message)
    assert merged is not None
    assert (merged.links[0].bandwidth.value, merged.links[0].bandwidth.age_seconds) == (9.0, 7.0)
    assert (merged.links[1].bandwidth.value, merged.links[1].bandwidth.age_seconds) == (2.0, 10.0)


def test_a_part_without_the_whole_is_waited_out() -> None:
    assert StateReader().merge(netmon_pb2.NetworkState(partial=True)) is None
