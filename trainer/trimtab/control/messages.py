"""What rank 0 asks of all ranks, and the mailbox in which the control thread leaves it."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from trimtab.plan.plan import Plan

T = TypeVar("T")


@dataclass(frozen=True)
class AdoptPlan:
    """All ranks follow ``plan`` from the next step on."""

    plan: Plan

    def to_json(self) -> dict[str, Any]:
        """Return the message as it crosses the network."""
        return {"adopt": self.plan.to_json()}


@dataclass(frozen=True)
class TryPlans:
    """All ranks try each plan for ``iterations`` steps, and undo them."""

    plans: tuple[Plan, ...]
    iterations: int

    def to_json(self) -> dict[str, Any]:
        """Return the message as it crosses the network."""
        return {"trials": [plan.to_json() for plan in self.plans], "iterations": self.iterations}


Message = AdoptPlan | TryPlans


def message_of(text: bytes) -> Message | None:
    """Read a message, or null, from JSON.

    Raises:
        LookupError, TypeError, ValueError, UserError: It is none that ranks could follow.
    """
    data: dict[str, Any] | None = json.loads(text)
    if data is None:
        return None
    if "adopt" in data:
        return AdoptPlan(Plan.from_json(data["adopt"]))
    return TryPlans(tuple(Plan.from_json(plan) for plan in data["trials"]), int(data["iterations"]))


class Mailbox(Generic[T]):
    """Holds at most one message between two threads. Every method may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._message: T | None = None

    def put(self, message: T) -> None:
        """Leave a message, in place of one that nobody has taken."""
        with self._lock:
            self._message = message

    def look(self) -> T | None:
        """Return the message, which stays; None if there is none."""
        with self._lock:
            return self._message

    def take(self, message: T | None) -> None:
        """Remove ``message``, unless another has come in its place."""
        with self._lock:
            if self._message is message:
                self._message = None

    def clear(self) -> None:
        """Remove whatever there is."""
        with self._lock:
            self._message = None
