"""A value that changes, and its subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Broadcast(Generic[Value]):
    """The newest value; a slow subscriber misses values in between, never the newest. For one event loop."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self._changed = asyncio.Event()

    def publish(self, value: Value) -> None:
        """Replace the value and wake every subscriber."""
        self.value = value
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def subscribe(self) -> AsyncIterator[Value]:
        """Yield the value now, then each newer one."""
        while True:
            changed, value = self._changed, self.value
            yield value
            await changed.wait()
