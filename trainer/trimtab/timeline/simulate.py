"""How long iterations take when buffers are compressed and cross the network while others are still computed.

What goes on at once, each in one order (`trimtab.collectives.base`): computing, a forward and a backward pass; the
compressing of buffers, one after another on a lane of its own; and each link, one exchange after another. A buffer is
compressed once backward has filled it, and sent once that is done and the link is free. The optimizer steps when
backward has ended and all has arrived that is due; then the next iteration begins. What is due only by the next forward
pass (`Transfer.is_late`) is waited for where that pass needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Start = Literal["at once", "gradient", "backward"]
"""When a buffer may be compressed: it waits from an earlier iteration; it is complete; backward has ended."""
LinkSlowness = Sequence[float]
"""Of each link: how much longer an exchange takes on it than on the first."""


class BufferTimes(NamedTuple):
    """What buffers take [s], each with an entry for each buffer."""

    ready: Sequence[float]
    """From the iteration's begin until backward has filled it, where the forward pass waited for nothing."""
    compress: Sequence[float]
    wire: Sequence[float]
    """On the first link."""
    needed: Sequence[float] = ()
    """From the iteration's begin until the forward pass first reads its parameters, likewise; where any are late."""


class Transfer(NamedTuple):
    """One buffer's exchange in an iteration."""

    buffer: int
    start: Start = "gradient"
    link: int = 0
    is_late: bool = False
    """Whether it need not have arrived before the optimizer steps, but only where the next forward pass needs it."""


@dataclass(frozen=True)
class Span:
    """What went on in one lane; computing holds the waits of the forward pass."""

    what: Literal["compute", "compress", "send"]
    begin: float
    end: float
    iteration: int
    buffer: int = -1
    """-1: of no single one."""
    link: int = 0


@dataclass(frozen=True)
class Timeline:
    """Iterations as they would go, from second 0 on."""

    ends: tuple[float, ...]
    """When each iteration's update is made, and the next begins."""
    spans: tuple[Span, ...]

    def mean_seconds(self, settling: int = 0) -> float:
        """Mean wall time of the iterations after the first ``settling``."""
        begin = self.ends[settling - 1] if settling else 0.0
        return (self.ends[-1] - begin) / (len(self.ends) - settling)


@dataclass
class Lanes:
    """Until when each lane is taken."""

    compress: float = 0.0
    links: list[float] = field(default_factory=lambda: [0.0])

    def pass_through(
        self,
        buffers: BufferTimes,
        transfers: Sequence[Transfer],
        begin: float,
        backward_end: float,
        link_slowness: LinkSlowness = (1.0,),
        passed: list[tuple[float, float]] | None = None,
    ) -> None:
        """Let an iteration's transfers pass, which begins at ``begin``.

        To ``passed`` is added, for each, when its buffer is compressed and when it has arrived.
        """
        ready, compress, wire, _ = buffers
        compressed, links = self.compress, self.links
        for buffer, start, link, _ in transfers:  # the controller's hottest loop
            may_begin = begin + ready[buffer] if start == "gradient" else backward_end if start == "backward" else begin
            compressed = (may_begin if may_begin > compressed else compressed) + compress[buffer]
            free = links[link]
            links[link] = (free if free > compressed else compressed) + wire[buffer] * link_slowness[link]
            if passed is not None:
                passed.append((compressed, links[link]))
        self.compress = compressed


def iteration_seconds(
    compute_seconds: float, buffers: BufferTimes, transfers: Sequence[Transfer], num_links: int = 1
) -> float:
    """Wall time of one iteration that begins with every lane free and ends when all has arrived."""
    lanes = Lanes(0.0, [0.0] * num_links)
    lanes.pass_through(buffers, transfers, 0.0, compute_seconds, (1.0,) * num_links)
    return max(compute_seconds, *lanes.links)


def simulate(
    compute_seconds: float,
    buffers: BufferTimes,
    iterations: Sequence[Sequence[Transfer]],
    link_slowness: LinkSlowness = (1.0,),
) -> Timeline:
    """Iterations one after another, each of which computes the same and sends what ``iterations`` says of it.

    Lanes may still be taken by what is late when the next iteration begins.
    """
    lanes = Lanes(0.0, [0.0] * len(link_slowness))
    late: dict[int, float] = {}
    begin, ends, spans = 0.0, [], list[Span]()
    for number, transfers in enumerate(iterations):
        # Each wait puts off all that comes after it, so the longest is what all of them come to.
        waited = max((at - begin - buffers.needed[buffer] for buffer, at in late.items()), default=0.0)
        started = begin + max(0.0, waited)
        backward_end = started + compute_seconds
        passed: list[tuple[float, float]] = []
        lanes.pass_through(buffers, transfers, started, backward_end, link_slowness, passed)
        spans.append(Span("compute", begin, backward_end, number))
        for (buffer, _, link, _), (compressed, arrived) in zip(transfers, passed, strict=True):
            spans.append(Span("compress", compressed - buffers.compress[buffer], compressed, number, buffer))
            wire = buffers.wire[buffer] * link_slowness[link]
            spans.append(Span("send", arrived - wire, arrived, number, buffer, link))
        late = {t.buffer: at for t, (_, at) in zip(transfers, passed, strict=True) if t.is_late}
        due = (at for t, (_, at) in zip(transfers, passed, strict=True) if not t.is_late)
        begin = max(backward_end, max(due, default=0.0))
        ends.append(begin)
    return Timeline(tuple(ends), tuple(spans))
