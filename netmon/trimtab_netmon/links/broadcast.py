"""One value that changes, and those who follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Broadcast(Generic[Value]):
    """The newest value; a slow follower misses values in between, never the newest. For one event loop."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self._changed = asyncio.Event()

    def set(self, value: Value) -> None:
        """Replace the value and wake every follower."""
        self.value = value
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def follow(self) -> AsyncIterator[Value]:
        """The value now, then each newer one."""
        while True:
            changed, value = self._changed, self.value
            yield value
            await changed.wait()
