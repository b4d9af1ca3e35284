"""Conversions between the monitor's own records and the messages of the contract.

A message may come from a newer monitor, or from a hostile peer. What these functions return is therefore never
infinite, negative or not a number, a worker can report only links that start at itself, and the only exception raised
is `MalformedReplyError`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon.links.measurements import LinkState, Measurement, Method, Summary

#: More than any test sends.
_MOST_BYTES = 2.0**63


class MalformedReplyError(Exception):
    """A peer's answer that cannot be true; the message says what it was."""


def link_to_proto(link: LinkState) -> netmon_pb2.Link:
    """Convert a link to a message."""
    return netmon_pb2.Link(
        source=link.source,
        target=link.target,
        latency=_measurement_to_proto(link.latency),
        bandwidth=_measurement_to_proto(link.bandwidth),
        jitter_seconds=link.jitter,
        queueing_seconds=link.queueing,
        silent=link.is_unreachable,
    )


def links_from_proto(table: netmon_pb2.LinkTable, worker: int, num_workers: int) -> dict[tuple[int, int], LinkState]:
    """Return the links that leave one worker, by its table; a table has nothing to say of others' links."""
    return {
        (worker, link.target): LinkState(
            source=worker,
            target=link.target,
            latency=_measurement_from_proto(link.latency),
            jitter=magnitude(link.jitter_seconds),
            queueing=magnitude(link.queueing_seconds),
            is_unreachable=link.silent,
        )
        for link in table.links
        if link.source == worker and link.target < num_workers and link.target != worker
    }


def test_result_from_proto(answer: netmon_pb2.TestBandwidthResponse) -> tuple[Measurement, float, float]:
    """Return the measurement that a test found, the seconds it took and the bytes it sent.

    Raises:
        MalformedReplyError: If the answer's figures cannot be true.
    """
    value, seconds = answer.bandwidth_bytes_per_second, answer.duration_seconds
    if not (0 < value < math.inf and 0 <= seconds < math.inf):
        raise MalformedReplyError(f"it answers {value:g} bytes/s after {seconds:g} s")
    measurement = Measurement(value, _method(answer.method), time.time(), is_lower_bound=answer.lower_bound)
    return measurement, seconds, float(answer.sent_bytes) or min(value * seconds, _MOST_BYTES)


def with_sweep(
    state: netmon_pb2.NetworkState, measured: Iterable[tuple[int, int]], not_measured: Iterable[tuple[int, int]]
) -> netmon_pb2.NetworkState:
    """Return the state as the answer to a measurement, with the links that it measured and could not measure."""
    answer = netmon_pb2.NetworkState()
    answer.CopyFrom(state)
    answer.measured.extend(netmon_pb2.LinkName(source=i, target=j) for i, j in measured)
    answer.not_measured.extend(netmon_pb2.LinkName(source=i, target=j) for i, j in not_measured)
    return answer


def magnitude(value: float) -> float:
    """Return a number that a peer sent; 0 if it is infinite, negative or no number."""
    return value if 0 < value < math.inf else 0.0


def state_to_proto(
    revision: int, now: float, num_workers: int, links: Sequence[LinkState], summary: Summary
) -> netmon_pb2.NetworkState:
    """Convert the published state to a message."""
    return netmon_pb2.NetworkState(
        revision=revision,
        published_at_unix_seconds=now,
        num_workers=num_workers,
        links=[link_to_proto(link) for link in links],
        summary=netmon_pb2.Summary(
            latency_seconds=summary.latency,
            bandwidth_bytes_per_second=summary.bandwidth,
            jitter_seconds=summary.jitter,
            stale=summary.stale,
            latency_age_seconds=summary.latency_age,
            bandwidth_age_seconds=summary.bandwidth_age,
            bandwidth_method=_method_to_proto(summary.method),
            bandwidth_lower_bound=summary.is_lower_bound,
        ),
    )


def _measurement_to_proto(measurement: Measurement) -> netmon_pb2.Measurement:
    return netmon_pb2.Measurement(
        value=measurement.value,
        method=_method_to_proto(measurement.method),
        measured_at_unix_seconds=measurement.measured_at,
        stale=measurement.stale,
        age_seconds=measurement.age,
        lower_bound=measurement.is_lower_bound,
    )


def _method_to_proto(method: Method) -> str:
    return netmon_pb2.Method.Name(method.value)


def _measurement_from_proto(measurement: netmon_pb2.Measurement) -> Measurement:
    return Measurement(
        value=magnitude(measurement.value),
        method=_method(measurement.method),
        measured_at=magnitude(measurement.measured_at_unix_seconds),
        stale=measurement.stale,
        age=magnitude(measurement.age_seconds),
        is_lower_bound=measurement.lower_bound,
    )


def _method(number: int) -> Method:
    """Return the method of that number, or none; a newer monitor may know others."""
    return Method(number) if number in _METHODS else Method.NONE


_METHODS = {method.value for method in Method}
