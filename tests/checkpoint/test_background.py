"""Checkpoints are written beside training by one thread, which is there before memory is short."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest
from trimtab.checkpoint.background import BackgroundWriter, Wait


def test_no_thread_starts_while_training_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that runs out of memory while it starts leaves whoever started it waiting without end."""
    writer, written = BackgroundWriter(), list[int]()
    monkeypatch.setattr(threading.Thread, "start", lambda thread: pytest.fail("a thread is started"))
    for number in range(2):
        writer.begin(lambda pause, pace, number=number: written.append(number))  # type: ignore[misc]
        assert writer.wait(30)
    assert written == [0, 1]
    assert writer.close(30)


def test_a_write_without_memory_is_a_problem_and_the_next_is_written() -> None:
    writer = BackgroundWriter()

    def too_large(pause: Wait, pace: Callable[[int], None]) -> None:
        raise MemoryError

    writer.begin(too_large)
    assert writer.wait(30)
    assert writer.problem == "MemoryError"
    writer.begin(lambda pause, pace: pace(7))
    assert writer.wait(30)
    assert (writer.problem, writer.num_bytes) == (None, 7)
    assert writer.close(30)


def test_what_was_written_is_let_go() -> None:
    class Copies:
        def write(self, pause: Wait, pace: Callable[[int], None]) -> None:
            """Write nothing."""

    writer, copies = BackgroundWriter(), Copies()
    is_there = weakref.ref(copies)
    writer.begin(copies.write)
    assert writer.wait(30)
    del copies
    gc.collect()
    assert is_there() is None
    writer.close(30)


def test_a_write_that_waits_is_given_up_at_the_end() -> None:
    writer, begun = BackgroundWriter(), threading.Event()

    def for_long(pause: Wait, pace: Callable[[int], None]) -> None:
        begun.set()
        assert not pause(300.0)

    writer.begin(for_long)
    assert begun.wait(30)
    assert not writer.close(0.0)
    assert not writer.is_busy
