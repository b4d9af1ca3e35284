"""Decides whether a watcher is told a status at once. Pure."""

from __future__ import annotations

from trimtab_api.trainer.v1 import status_pb2

FINAL = (status_pb2.STATE_SUCCEEDED, status_pb2.STATE_FAILED)


def is_final(status: status_pb2.Status) -> bool:
    """Return whether no other status will follow."""
    return status.state in FINAL


def is_news(sent: status_pb2.Status, now: status_pb2.Status) -> bool:
    """Return whether state or plan changed, or the network's figures became stale or fresh, since ``sent``.

    Everything else, such as the reason why a plan was kept, waits for the watcher's interval.
    """
    return (
        sent.state != now.state
        or (sent.plan.version, sent.plan.name) != (now.plan.version, now.plan.name)
        or sent.network.stale != now.network.stale
    )
