"""The one interface that every collective implements: per buffer, in two parts, conserving.

The law, with ``acc = residual + gradient`` on each of the N ranks, per element and within float32 rounding::

    sum over ranks of acc  ==  N * update  +  sum over ranks of the new residual

A scheme writes `Collective.prepare`, which compresses and does not communicate, and `Collective.run`, which
communicates. Each has a thread of its own, and on a GPU a stream (`trimtab.transport.worker_thread`), on which buffers
pass in the order they were submitted: the next buffer is compressed while the one before is on the wire.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trimtab.plan.plan import elements_to_send
from trimtab.sparsifiers.base import Sent
from trimtab.sparsifiers.topk import TopK

if TYPE_CHECKING:
    from trimtab.kernels import FlatGrad
    from trimtab.sparsifiers.base import Selector
    from trimtab.transport.base import Transport
    from trimtab.transport.group import Group

#: Consecutive ranges of the flat gradient, by element: the buckets of a fusion plan.
Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Exchange:
    """One buffer to exchange: flat float32 vectors of one range of the flat buffers, each of shape [n]."""

    grad: FlatGrad
    """This rank's gradient; unscaled. Not needed after `Collective.prepare`, so ``out`` may be the same tensor.

    In one piece for a dense scheme.
    """
    residual: Tensor
    """What error feedback has held back so far; read only."""
    next_residual: Tensor
    """Where the new residual is written; becomes current when the exchange is committed."""
    out: Tensor
    """Where the mean update is written, bit-identical on every rank."""
    segments: Sequence[int]
    """Offsets of the tensors in the buffer, from 0 to n; a sparse scheme selects in each segment by itself.

    ``(0, n)``, one segment, is selection behind fusion.
    """
    k: Sequence[int]
    """Elements to select in each segment."""
    step: int
    """Step number, the same on every rank (whose turn it is, where a scheme takes turns)."""
    start: int = 0
    """Offset of the buffer in the flat buffers: the key of any state a scheme keeps."""
    wire: str = "float32"
    """The format in which values cross, one of those in the scheme's row; sums are float32 in each."""


@dataclass(frozen=True)
class Prepared:
    """A compressed buffer; a scheme's own subclass holds what is to be sent.

    `run` may use the tensors that its fields hold, directly or in dataclasses, lists, tuples and dictionaries: those
    cross from the stream that compressed to the one that communicates.
    """

    squared_norm_before: float
    """Sum of squares of ``residual + gradient`` on this rank; not finite if and only if one of the elements is not."""


@dataclass(frozen=True)
class Exchanged:
    """What one exchange of one buffer did on this rank."""

    sent: Tensor | None
    """int32 [m]: where the residual of this rank was cleared, wholly or in part, by offset in the buffer.

    None: everywhere.
    """
    num_selected: int
    """Elements this rank put on the wire (the achieved k)."""
    squared_norm_before: float
    """Sum of squares of ``residual + gradient`` on this rank."""
    squared_norm_after: float
    """Sum of squares of the new residual on this rank."""
    num_bytes: int
    """Bytes this rank really sent."""
    num_messages: int
    """Messages on the longest chain of this exchange, the multiplier of the latency alpha."""
    vote: Tensor
    """float32 [m]: the element-wise sum over ranks of the votes that travelled along, the same bits on every rank.

    As `Handle.wait` returns it, it lies on the CPU.
    """
    compress_seconds: float
    """Selection, packing and unpacking on this rank."""
    collective_seconds: float
    """Sending and waiting on this rank."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What the scheme measured of itself, by name: each is recorded as its mean over the buffers of a step."""


class Handle:
    """An exchange under way."""

    def __init__(self) -> None:
        self.prepared: Future[Prepared]
        """The compressed buffer, or what `Collective.prepare` raised."""
        self._exchanged: Future[Exchanged]
        self.queued_at = perf_counter()
        self.compress_began_at = self.prepared_at = self.exchange_began_at = self.ended_at = 0.0
        """When the buffer began to be compressed and was, and when its exchange began and was over, by that clock."""

    def wait(self, timeout: float | None = None) -> Exchanged:
        """Block until the exchange is done; raises what it raised."""
        return self._exchanged.result(timeout)

    @property
    def is_over(self) -> bool:
        """Whether the exchange is done."""
        return self._exchanged.done() and self._exchanged.exception() is None


class Collective(ABC):
    """A scheme, with what it carries from step to step.

    It counts the bytes and messages it really sent; its closed-form cost stands in the catalogue. State is proposed
    during a step and kept only by `commit`, so that a dropped step leaves no trace; it is keyed by range of the flat
    buffers.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        """The ranks that exchange; what communicates for them is given to `run`, for there may be several links."""

    @abstractmethod
    def prepare(self, exchange: Exchange, selector: Selector | None) -> Prepared:
        """Compress one buffer; does not communicate. ``selector`` is None for a dense scheme."""

    @abstractmethod
    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Exchange one buffer over ``transport``, blocking.

        ``vote`` (float32 [m], often empty) must come back summed over ranks and is the scheme's to overwrite: it
        travels in messages that are sent anyway.
        """

    def commit(self) -> None:
        """Keep the state that the exchanges since the last commit proposed."""

    def discard(self) -> None:
        """Forget what the exchanges since the last commit proposed: the step was dropped."""

    def state_dict(self) -> dict[str, Any]:
        """The committed state, as plain data and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""

    def rebucket(self, old: Ranges, new: Ranges) -> None:
        """Bring the committed state from the buckets ``old`` to the buckets ``new``; both cover all flat buffers."""

    def exchange(
        self,
        exchange: Exchange,
        selector: Selector | None = None,
        vote: Callable[[], Tensor] | None = None,
        link: Group | None = None,
    ) -> Handle:
        """Queue one buffer; every rank must queue the same buffers in the same order.

        ``vote`` is called on the link's thread once this buffer is compressed, and all before it.
        ``link`` is what the buffer crosses: the group's own connections where it is None.
        """
        link = link or self.group
        handle = Handle()

        def prepare() -> Prepared:
            handle.compress_began_at = perf_counter()
            prepared = self.prepare(exchange, selector)
            handle.prepared_at = perf_counter()
            return prepared

        def run() -> Exchanged:
            prepared = handle.prepared.result()
            handle.exchange_began_at = perf_counter()
            own = torch.empty(0, dtype=torch.float32) if vote is None else vote()
            exchanged = self.run(exchange, prepared, link.transport, own.to(exchange.out.device))
            handle.ended_at = perf_counter()
            # Read here, where a GPU has only this exchange to wait for, and not where backward is under way.
            return exchanged if exchanged.vote.is_cpu else replace(exchanged, vote=exchanged.vote.cpu())

        handle.prepared = self.group.compress(prepare, uses=exchange)
        handle._exchanged = link.submit(run, uses=exchange)
        return handle

    def reduce(self, acc: Tensor, ratio: float, selector: Selector | None = None, step: int = 0) -> Tensor:
        """Exchange one buffer and wait, for tests and readers: returns the mean update; ``acc`` becomes the residual.

        Both are float32 [n]. A sparse scheme without a ``selector`` selects by exact top-k. What both carry is kept
        for the next call. Raises ValueError on every rank where an element of some rank's ``acc`` is not finite: then
        ``acc``, and all that is carried, stay as they were.
        """
        n = acc.numel()
        selector = selector or TopK()
        next_residual, out = torch.empty_like(acc), torch.empty_like(acc)
        faulty = torch.zeros(self.group.size, dtype=torch.float32)
        faulty[self.group.rank] = float(not bool(torch.isfinite(acc).all()))
        exchange = Exchange(
            grad=acc,
            residual=torch.zeros_like(acc),
            next_residual=next_residual,
            out=out,
            segments=(0, n),
            k=(elements_to_send(ratio, n),),
            step=step,
        )
        exchanged = self.exchange(exchange, selector, lambda: faulty).wait()
        if ranks := exchanged.vote.nonzero().flatten().tolist():
            self.discard()
            selector.discard()
            raise ValueError(f"acc is not finite on rank {', '.join(map(str, ranks))}; replace what is not, and retry")
        self.commit()
        selector.commit([Sent(0, n, exchanged.sent)])
        acc.copy_(next_residual)
        return out
