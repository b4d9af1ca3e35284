"""When a status is worth a message. Pure."""

from __future__ import annotations

from trimtab_api.trainer.v1 import status_pb2

FINAL = (status_pb2.STATE_SUCCEEDED, status_pb2.STATE_FAILED)


def is_final(status: status_pb2.Status) -> bool:
    """Whether nothing will follow."""
    return status.state in FINAL


def is_news(sent: status_pb2.Status, now: status_pb2.Status) -> bool:
    """Whether a watcher should hear at once: another state or plan, or figures of the network begin or cease to hold.

    Why a plan was kept is no news; it comes at the watcher's pace.
    """
    return (
        sent.state != now.state
        or (sent.plan.version, sent.plan.name) != (now.plan.version, now.plan.name)
        or sent.network.stale != now.network.stale
    )
