"""Simulated iterations: buffers are compressed and cross the network while others are still computed.

Lanes run at once, each in one order (`trimtab.collectives.base`): computing, a forward and a backward pass;
compressing, one buffer after another; and each link, one exchange after another. A buffer is compressed once backward
has filled it, and sent once that is done and the link is free. Links over one interface share what it carries, but no
exchange waits for the startup of another. The optimizer steps when backward has ended and all has arrived that is due;
then the next iteration begins. What is due only by the next forward pass (`Transfer.is_deferred`) is waited for where
that pass needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from trimtab.plan.timetable import Iteration

#: Seconds of an exchange's startup that are processors' work, and cost as much beside other exchanges as alone: 24 more
#: parts of a step took 54 ms, by four ranks on two cores (docs/adr/0013-planned-schedules-and-fusion.md).
HOST_SECONDS = 2e-3
#: Iterations of a cycle, some of whose transfers are late, that are averaged over, after as many in which what crosses
#: iterations has settled: at least, and at most.
_FEWEST, _MOST = 4, 12


class BufferTimes(NamedTuple):
    """Seconds of buffers, each with an entry for each buffer."""

    ready: Sequence[float]
    """From the iteration's begin until backward has filled it, if the forward pass waited for nothing."""
    compress: Sequence[float]
    wire: Sequence[float]
    """On the first link."""
    needed: Sequence[float] = ()
    """From the iteration's begin until the forward pass first reads its parameters, likewise; if any are late."""
    backward_begin: float = 0.0
    """From the iteration's begin until backward begins, likewise."""
    link_slowness: Sequence[float] = (1.0,)
    """For each interface: an exchange's time on it over that on the first. Further links are the first's."""
    startup: Sequence[float] | None = None
    """Part of `wire` that is latency, which others may fill (`latent`); None without further links."""


@dataclass(frozen=True)
class Span:
    """An interval of one lane; computing includes the waits of the forward pass."""

    what: Literal["compute", "compress", "send"]
    begin: float
    end: float
    iteration: int
    buffer: int = -1
    """-1: no single buffer."""
    link: int = 0


@dataclass(frozen=True)
class Timeline:
    """Simulated iterations, from second 0 on."""

    ends: tuple[float, ...]
    """Time of each iteration's update, at which the next begins."""
    spans: tuple[Span, ...]

    def of_iteration(self, number: int) -> Timeline:
        """Return one iteration's spans, from its begin on, with those that others have left on their way."""
        begin, end = self.ends[number - 1] if number else 0.0, self.ends[number]
        spans = (
            replace(span, begin=max(0.0, span.begin - begin), end=min(end, span.end) - begin)
            for span in self.spans
            if span.end > begin and span.begin < end
        )
        return Timeline((end - begin,), tuple(spans))


@dataclass
class _Lanes:
    """State of all lanes: until when each is taken, and what is still on its way."""

    links: list[float]
    interface: float | None = None
    """Until when bytes pass over the first interface; None if it has one link, which tells it."""
    compress: float = 0.0
    late: dict[int, float] = field(default_factory=dict)
    """Arrival, by buffer, of what need not have arrived before the last update."""

    @classmethod
    def free(cls, buffers: BufferTimes, iterations: Iterable[Sequence[Transfer]]) -> _Lanes:
        """Return as many lanes as these iterations take, all free at second 0."""
        interfaces = [0.0] * len(buffers.link_slowness)
        if buffers.startup is None:
            return cls(interfaces)
        num_links = 1 + max((transfer.link for transfers in iterations for transfer in transfers), default=0)
        return cls(interfaces + [0.0] * (num_links - len(interfaces)), interface=0.0)

    def started(self, buffers: BufferTimes, begin: float) -> float:
        """Return when an iteration that begins at ``begin`` would have begun had its forward pass not waited.

        Each wait puts off all that comes after it, so the longest is what all of them come to.
        """
        return max([begin, *(at - buffers.needed[buffer] for buffer, at in self.late.items())])

    def iterate(
        self,
        compute_seconds: float,
        buffers: BufferTimes,
        transfers: Sequence[Transfer],
        begin: float,
        passed: list[tuple[float, float]] | None = None,
    ) -> float:
        """Return when an iteration that begins at ``begin`` ends; `late` is what it leaves on its way.

        Args:
            compute_seconds: Forward and backward pass.
            buffers: Times of each buffer.
            transfers: Exchanges of the iteration, in order.
            begin: Begin of the iteration.
            passed: Gets, for each transfer, when its buffer is compressed and when it has arrived.
        """
        started = self.started(buffers, begin) if self.late else begin
        end = backward_end = started + compute_seconds
        ready, compress, wire, _, backward_begin, slowness, startup = buffers
        compressed, links, late = self.compress, self.links, dict[int, float]()
        interface, num_interfaces = self.interface, len(slowness)
        for buffer, start, link, is_deferred in transfers:  # the controller's hottest loop
            if start == "gradient":
                may_begin = started + ready[buffer]
            elif start == "backward":
                may_begin = backward_end
            else:
                may_begin = begin if start == "at once" else started + backward_begin
            compressed = (may_begin if may_begin > compressed else compressed) + compress[buffer]
            free = links[link]
            begun = free if free > compressed else compressed
            if interface is None or startup is None or 0 < link < num_interfaces:
                arrived = links[link] = begun + wire[buffer] * slowness[link]
            else:
                flows = begun + startup[buffer]
                arrived = (flows if flows > interface else interface) + wire[buffer] - startup[buffer]
                interface = links[link] = arrived
            if is_deferred:
                late[buffer] = arrived
            elif arrived > end:
                end = arrived
            if passed is not None:
                passed.append((compressed, arrived))
        self.compress, self.late, self.interface = compressed, late, interface
        return end


def latent(startup: float) -> float:
    """Return the seconds of an exchange's startup that are waiting alone."""
    return max(0.0, startup - HOST_SECONDS)


def iteration_seconds(compute_seconds: float, buffers: BufferTimes, transfers: Sequence[Transfer]) -> float:
    """Return the wall time of one iteration that begins with every lane free and ends when all due has arrived."""
    return _Lanes.free(buffers, [transfers]).iterate(compute_seconds, buffers, transfers, 0.0)


def mean_iteration_seconds(
    compute_seconds: float, buffers: BufferTimes, cycle: Sequence[tuple[Sequence[Transfer], int]]
) -> float:
    """Return the mean wall time of a cycle of iterations.

    If nothing is late, each ends with every lane free; else what crosses iterations is let settle first.

    Args:
        compute_seconds: Forward and backward pass.
        buffers: Times of each buffer.
        cycle: Transfers of each iteration, and how often in a row it comes.
    """
    if not any(transfer.is_deferred for transfers, _ in cycle for transfer in transfers):
        seconds = (iteration_seconds(compute_seconds, buffers, transfers) * count for transfers, count in cycle)
        return sum(seconds) / sum(count for _, count in cycle)
    iterations = [transfers for transfers, count in cycle for _ in range(count)]
    iterations = (iterations * -(-_FEWEST // len(iterations)))[:_MOST]
    lanes, now, ends = _Lanes.free(buffers, iterations), 0.0, list[float]()
    for _ in range(2):
        for transfers in iterations:
            now = lanes.iterate(compute_seconds, buffers, transfers, now)
        ends.append(now)
    return (ends[1] - ends[0]) / len(iterations)


def simulate(compute_seconds: float, buffers: BufferTimes, iterations: Sequence[Sequence[Transfer]]) -> Timeline:
    """Simulate iterations one after another, each with the same computation and its own transfers.

    Lanes may still be taken by what is late when the next iteration begins.
    """
    lanes = _Lanes.free(buffers, iterations)
    begin, ends, spans = 0.0, [], list[Span]()
    for number, transfers in enumerate(iterations):
        started = lanes.started(buffers, begin)
        passed: list[tuple[float, float]] = []
        end = lanes.iterate(compute_seconds, buffers, transfers, begin, passed)
        spans.append(Span("compute", begin, started + compute_seconds, number))
        for (buffer, _, link, _), (compressed, arrived) in zip(transfers, passed, strict=True):
            spans.append(Span("compress", compressed - buffers.compress[buffer], compressed, number, buffer))
            slowness = buffers.link_slowness[link] if link < len(buffers.link_slowness) else 1.0
            wire = buffers.wire[buffer] * slowness
            spans.append(Span("send", arrived - wire, arrived, number, buffer, link))
        begin = end
        ends.append(begin)
    return Timeline(tuple(ends), tuple(spans))


Start = Literal["at once", "backward begins", "gradient", "backward"]
"""Moment from which a buffer may be compressed.

It waits since an earlier iteration; as soon as there is a gradient; it is complete; backward has ended.
"""


class Transfer(NamedTuple):
    """One buffer's exchange in an iteration."""

    buffer: int
    start: Start = "gradient"
    link: int = 0
    is_deferred: bool = False
    """True if it need not have arrived before the optimizer steps, but only when the next forward pass needs it."""


def transfers_of(iteration: Iteration, number: int = 0) -> tuple[Transfer, ...]:
    """Return the transfers of an iteration, whose generations are counted from iteration ``number``."""
    made, consensus_send_index = [], iteration.consensus_send_index
    for index, send in enumerate(iteration.sends):
        start: Start = send.after if send.iteration >= number else "at once"
        if (
            index == consensus_send_index
        ):  # the vote is not sent before there is a gradient, nor before backward has ended
            if index < len(iteration.sends) - 1:
                start = "backward"
            elif start == "at once":
                start = "backward begins"
        made.append(
            Transfer(send.bucket, start, send.link, send.arrives == "forward" and index != consensus_send_index)
        )
    return tuple(made)
