"""Messages of a rank to all others, as far as a step has to do with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trimtab.plan.plan import Plan


class Messages(Protocol):
    """Messages of a rank to all others, as far as a step has to do with them."""

    @property
    def has_message(self) -> Callable[[], bool]:
        """Tells whether a message follows the step's exchange; called on the communication thread."""

    def plan_ahead(self) -> Callable[[], Plan | None]:
        """Begin to tell all ranks of rank 0's new plan within a round; the result waits for it."""
