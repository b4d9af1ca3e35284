"""The one interface of all collectives: each exchanges a buffer in two parts and conserves it.

The conservation law, with ``acc = residual + gradient`` on each of the N ranks, per element and within float32
rounding::

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
    """The residual of error feedback; read only."""
    next_residual: Tensor
    """Receives the new residual, which becomes current when the exchange is committed."""
    out: Tensor
    """Receives the mean update, bit-identical on every rank."""
    segments: Sequence[int]
    """Offsets of the tensors in the buffer, from 0 to n; a sparse scheme selects in each segment by itself.

    ``(0, n)``, one segment, selects per bucket.
    """
    k: Sequence[int]
    """Elements to select in each segment."""
    step: int
    """Step number, the same on every rank; it decides whose turn it is if a scheme takes turns."""
    start: int = 0
    """Offset of the buffer in the flat buffers; the key of a scheme's carried state."""
    wire: str = "float32"
    """Value format in which values are sent, one of those in the scheme's row; sums are float32 in each."""


@dataclass(frozen=True)
class Prepared:
    """A compressed buffer; a scheme's own subclass holds what is to be sent.

    `Collective.run` may use the tensors in its fields, directly or in dataclasses, lists, tuples and dictionaries:
    these pass from the stream that compressed to the one that communicates.
    """

    squared_norm_before: float
    """Sum of squares of ``residual + gradient`` on this rank; not finite if and only if one of the elements is not."""


@dataclass(frozen=True)
class Exchanged:
    """Result of one buffer's exchange on this rank."""

    sent: Tensor | None
    """int32 [m]: offsets in the buffer at which this rank's residual was cleared, wholly or in part.

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
    """Messages on the longest chain of the exchange, the multiplier of the latency alpha."""
    vote: Tensor
    """float32 [m]: element-wise sum over ranks of the votes that travelled along, the same bits on every rank.

    As `Handle.wait` returns it, it lies on the CPU.
    """
    compress_seconds: float
    """Seconds of selection, packing and unpacking on this rank."""
    collective_seconds: float
    """Seconds of sending and waiting on this rank."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """The scheme's own metrics by name; each is recorded as its mean over the buffers of a step."""


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
        """Block until the exchange is done, and return its result.

        Args:
            timeout: Seconds to wait at most; None waits without limit.

        Raises:
            Exception: The error of the exchange.
        """
        return self._exchanged.result(timeout)

    @property
    def is_over(self) -> bool:
        """True if the exchange has succeeded."""
        return self._exchanged.done() and self._exchanged.exception() is None


class Collective(ABC):
    """A scheme, with the state that it carries from step to step.

    It counts the bytes and messages that it really sent; its closed-form cost stands in the catalogue. State is
    proposed during a step and kept only by `commit`, so that a dropped step leaves no trace. It is keyed by range of
    the flat buffers.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        """The ranks that exchange; `run` is given the transport, because a group may have several links."""

    @abstractmethod
    def prepare(self, exchange: Exchange, selector: Selector | None) -> Prepared:
        """Compress one buffer, without communicating.

        Args:
            exchange: The buffer.
            selector: The sparsifier; None for a dense scheme.
        """

    @abstractmethod
    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Exchange one buffer, and block until that is done.

        Args:
            exchange: The buffer.
            prepared: What `prepare` returned for it.
            transport: The link to use.
            vote: float32 [m], often empty. It must come back summed over ranks, in messages that are sent anyway; the
                scheme
            may overwrite it.
        """

    def commit(self) -> None:
        """Keep the state that the exchanges since the last commit proposed."""

    def discard(self) -> None:
        """Forget what the exchanges since the last commit proposed, because the step was dropped."""

    def state_dict(self) -> dict[str, Any]:
        """Return the committed state, as plain data and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""

    def rebucket(self, old: Ranges, new: Ranges) -> None:
        """Carry the committed state from the buckets ``old`` to the buckets ``new``; both cover all flat buffers."""

    def exchange(
        self,
        exchange: Exchange,
        selector: Selector | None = None,
        vote: Callable[[], Tensor] | None = None,
        link: Group | None = None,
    ) -> Handle:
        """Queue one buffer; every rank must queue the same buffers in the same order.

        Args:
            exchange: The buffer.
            selector: The sparsifier; None for a dense scheme.
            vote: Called on the link's thread once this buffer, and all before it, are compressed.
            link: The connections to use; None for the group's own.
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
        """Exchange one buffer and wait, for tests and readers.

        State is kept for the next call.

        Args:
            acc: float32 [n], gradient plus residual; becomes the new residual.
            ratio: Share of the elements to select.
            selector: The sparsifier; None selects by exact top-k.
            step: Step number.

        Returns:
            The mean update, float32 [n].

        Raises:
            ValueError: An element of some rank's ``acc`` is not finite. Raised on every rank; ``acc`` and carried state
                stay as
            they were.
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
