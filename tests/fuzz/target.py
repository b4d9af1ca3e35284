"""What is fuzzed: a parser, real examples of its input, and the law that it keeps."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: Seconds that one input may take: a hundred times what any real one does.
DEADLINE = 10.0
#: Bytes of memory by which all inputs together may raise what the process holds.
MOST_BYTES = 512 << 20


class HangError(BaseException):
    """An input took longer than `DEADLINE`; no parser catches it."""


@dataclass(frozen=True)
class Target:
    """One parser. ``feed`` returns for any bytes; whatever it raises is a defect."""

    name: str
    feed: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    inputs: int = 1500
    """Inputs in `make test`: some three seconds of them."""

    def corpus(self) -> list[bytes]:
        """Return real examples, and what was once found to break the parser."""
        kept = sorted((Path(__file__).parent / "corpus" / self.name).glob("*"))
        return [*self.seeds(), *(path.read_bytes() for path in kept)]


@contextmanager
def deadline(seconds: float = DEADLINE) -> Iterator[None]:
    """Raise `HangError` in this thread, the main one, unless the block is left in time."""

    def hangs(*_: object) -> None:
        raise HangError(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def told(error: Exception, name: str = "") -> None:
    """Check that the message of a refusal is one line, and holds a name."""
    assert "\n" not in str(error), f"several lines: {error}"
    assert name in str(error), f"{name} is not in: {error}"
