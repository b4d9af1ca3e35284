"""Exchanges that keep whoever waits for them, on a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from trimtab.collectives.base import Exchanged, Handle


@contextmanager
def each_takes(spend: Callable[[], None]) -> Iterator[None]:
    """``spend`` is called where an exchange is waited for first."""
    waited: list[Handle] = []
    wait = Handle.wait

    def slow(handle: Handle, timeout: float | None = None) -> Exchanged:
        if not any(handle is each for each in waited):
            waited.append(handle)
            spend()
        return wait(handle, timeout)

    with patch.object(Handle, "wait", slow):
        yield
