"""Between the monitor's own records and the messages of the contract."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab_api.netmon.v1 import netmon_pb2

from trimtab_netmon.figures import Figure, LinkState, Method, Summary


def link_to_wire(link: LinkState) -> netmon_pb2.Link:
    """A link as a message."""
    return netmon_pb2.Link(
        source=link.source,
        target=link.target,
        latency=_figure_to_wire(link.latency),
        bandwidth=_figure_to_wire(link.bandwidth),
        jitter_seconds=link.jitter,
        queueing_seconds=link.queueing,
    )


def link_from_wire(link: netmon_pb2.Link) -> LinkState:
    """Inverse of `link_to_wire`."""
    return LinkState(
        source=link.source,
        target=link.target,
        latency=_figure_from_wire(link.latency),
        bandwidth=_figure_from_wire(link.bandwidth),
        jitter=link.jitter_seconds,
        queueing=link.queueing_seconds,
    )


def state_to_wire(
    revision: int, now: float, num_workers: int, links: Sequence[LinkState], summary: Summary
) -> netmon_pb2.NetworkState:
    """The published state as a message."""
    return netmon_pb2.NetworkState(
        revision=revision,
        published_at_unix_seconds=now,
        num_workers=num_workers,
        links=[link_to_wire(link) for link in links],
        summary=netmon_pb2.Summary(
            latency_seconds=summary.latency,
            bandwidth_bytes_per_second=summary.bandwidth,
            jitter_seconds=summary.jitter,
            stale=summary.stale,
        ),
    )


def _figure_to_wire(figure: Figure) -> netmon_pb2.Measurement:
    return netmon_pb2.Measurement(
        value=figure.value,
        method=netmon_pb2.Method.Name(figure.method.value),
        measured_at_unix_seconds=figure.measured_at,
        stale=figure.stale,
    )


def _figure_from_wire(figure: netmon_pb2.Measurement) -> Figure:
    return Figure(figure.value, Method(figure.method), figure.measured_at_unix_seconds, figure.stale)
