"""Sanitizing of rank 0's messages: the boundary to tenants. Pure.

Rank 0 is a user's image and may say anything. Behind this module every figure is finite and bounded, and every text is
short, on one line and printable. A figure that cannot be true is absent, as if rank 0 had not sent it. So no message of
a trainer makes a reconcile raise, or the API server refuse a status.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

from trimtab_api.trainer.v1 import status_pb2

from trimtab_operator.kube.text import on_one_line, truncate

#: Bytes of one message of rank 0's; an honest one has less than a tenth.
MAX_MESSAGE_BYTES = 64 * 1024

#: The largest whole number that JSON carries exactly.
LARGEST_COUNT = 2**53 - 1
#: The largest loss: what float32 can hold.
LARGEST_LOSS = 3.4e38
#: Seconds of a year, the longest that a step, a latency or the age of a checkpoint may be said to be.
LONGEST_SECONDS = 365 * 24 * 3600.0
#: Bytes per second; a thousand times what any network carries today.
LARGEST_BANDWIDTH = 1e15
#: Characters of a plan's or a collective's name, and of a sentence.
LONGEST_NAME, LONGEST_SENTENCE = 64, 512

State = Literal["Unknown", "Starting", "Running", "Succeeded", "Failed"]

_STATES: dict[int, State] = {
    status_pb2.STATE_STARTING: "Starting",
    status_pb2.STATE_RUNNING: "Running",
    status_pb2.STATE_SUCCEEDED: "Succeeded",
    status_pb2.STATE_FAILED: "Failed",
}


@dataclass(frozen=True)
class Plan:
    """The plan by which gradients cross the network now."""

    version: int
    name: str
    ratio: float
    """In [0, 1]."""
    collective: str
    reason: str
    adopted_at_step: int


@dataclass(frozen=True)
class Network:
    """The slowest link."""

    latency: float
    """Seconds, one way."""
    bandwidth: float
    """Bytes per second, more than 0."""
    stale: bool


@dataclass(frozen=True)
class Checkpoint:
    """The last whole checkpoint that the attempt has written."""

    step: int
    age: float
    """Seconds."""
    num_bytes: int
    seconds: float
    """Time that its write took."""


@dataclass(frozen=True)
class Rank0Status:
    """One status of rank 0, with its plausible figures only."""

    state: State = "Unknown"
    """Unknown also for a state of a newer version."""
    message: str = ""
    step: int | None = None
    loss: float | None = None
    """None where none was passed, or one that is no finite number."""
    loss_is_lost: bool = False
    """True if the loss is no finite number: then an earlier one says nothing of training any more."""
    step_seconds: float | None = None
    gain: float | None = None
    """In [0, 1]; None while there is no plan, under which alone gradients are exchanged."""
    plan: Plan | None = None
    network: Network | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_problem: str = ""
    """Why the last checkpoint could not be written; empty where it was, or where none was tried."""

    @property
    def is_final(self) -> bool:
        """True if rank 0 has said how training ended."""
        return self.state in ("Succeeded", "Failed")

    @classmethod
    def sanitize(cls, said: status_pb2.Status) -> Self:
        """Sanitize a status of rank 0. Never raises."""
        loss = _within(said.loss, -LARGEST_LOSS, LARGEST_LOSS) if said.HasField("loss") else None
        return cls(
            state=_STATES.get(said.state, "Unknown"),
            message=_text(said.message, LONGEST_SENTENCE),
            step=_count(said.step),
            loss=loss,
            loss_is_lost=said.HasField("loss") and loss is None,
            step_seconds=_within(said.step_seconds, 0.0, LONGEST_SECONDS) or None,
            gain=_within(said.gain, 0.0, 1.0) if said.HasField("plan") else None,
            plan=_plan(said.plan) if said.HasField("plan") else None,
            network=_network(said.network) if said.HasField("network") else None,
            checkpoint=_checkpoint(said.checkpoint) if said.HasField("checkpoint") else None,
            checkpoint_problem=_text(said.checkpoint_problem, LONGEST_SENTENCE),
        )


def _plan(said: status_pb2.Plan) -> Plan | None:
    version, ratio, adopted_at = _count(said.version), _within(said.ratio, 0.0, 1.0), _count(said.adopted_at_step)
    if version is None or ratio is None or adopted_at is None:
        return None
    name, collective = _text(said.name, LONGEST_NAME), _text(said.collective, LONGEST_NAME)
    return Plan(version, name, ratio, collective, _text(said.reason, LONGEST_SENTENCE), adopted_at)


def _network(said: status_pb2.Network) -> Network | None:
    """Return the network's figures; None also while the bandwidth is unknown, which rank 0 reports as 0."""
    latency = _within(said.latency_seconds, 0.0, LONGEST_SECONDS)
    bandwidth = _within(said.bandwidth_bytes_per_second, 0.0, LARGEST_BANDWIDTH)
    return Network(latency, bandwidth, said.stale) if latency is not None and bandwidth else None


def _checkpoint(said: status_pb2.Checkpoint) -> Checkpoint | None:
    step, num_bytes = _count(said.step), _count(said.bytes)
    age, seconds = (_within(each, 0.0, LONGEST_SECONDS) for each in (said.age_seconds, said.seconds))
    if step is None or num_bytes is None or age is None or seconds is None:
        return None
    return Checkpoint(step, age, num_bytes, seconds)


def _count(said: int) -> int | None:
    return said if said <= LARGEST_COUNT else None


def _within(said: float, least: float, most: float) -> float | None:
    return said if math.isfinite(said) and least <= said <= most else None


def _text(said: str, longest: int) -> str:
    return truncate(on_one_line(said), longest)
