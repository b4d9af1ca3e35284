"""The one interface that every collective implements: asynchronous, per buffer, conserving.

The law, with ``acc = residual + gradient`` on each of the N ranks, per element and within float32 rounding::

    sum over ranks of acc  ==  N * update  +  sum over ranks of the new residual

A scheme writes `Collective.run`, which blocks; `Collective.exchange` hands it to the group's one communication
thread, so that buffers cross in plan order however backward finishes (Gloo runs concurrent collectives of one group
out of order).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from trimtab.collectives.group import Group
    from trimtab.kernels import Flat
    from trimtab.sparsify.base import Selector


@dataclass(frozen=True)
class Exchanged:
    """What one exchange of one buffer did on this rank."""

    sent: Tensor | None
    """int32 [m]: the indices in the buffer whose sum was formed and whose residual was cleared; None for dense."""
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
    note: Tensor | None
    """float32 [m]: the element-wise sum over ranks of the notes that travelled along, the same bits on every rank."""
    compress_seconds: float
    """Selection, packing and unpacking on this rank."""
    collective_seconds: float
    """Sending and waiting on this rank."""


Note = Callable[[float, float], Tensor]


@dataclass(frozen=True)
class Exchange:
    """One buffer to exchange: flat float32 vectors of one range of the arena, each of shape [n]."""

    grad: Flat
    """This rank's gradient; unscaled. Not needed after the exchange, so ``out`` may be the same tensor.

    In one piece for a dense scheme.
    """
    residual: Tensor
    """What error feedback has held back so far; read only."""
    next_residual: Tensor
    """Where the new residual is written; becomes current when the step commits."""
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
    """Offset of the buffer in the arena: the key of any state a scheme keeps."""
    note: Note | None = None
    """What the ranks must agree on, carried along so that it costs no message of its own.

    Called on the communication thread once this rank knows the buffer's squared norms before and after (`Exchanged`),
    and before the last message leaves; returns float32 [m], which comes back summed over ranks.
    """

    def write_note(self, squared_norm_before: float, squared_norm_after: float) -> Tensor:
        """The note of this rank, to be summed in place; empty where none was asked for."""
        if self.note is None:
            return self.grad.new_empty(0)
        return self.note(squared_norm_before, squared_norm_after).to(self.grad.device, torch.float32, copy=True)


class Handle:
    """An exchange under way."""

    def __init__(self, future: Future[Exchanged]) -> None:
        self._future = future

    def wait(self, timeout: float | None = None) -> Exchanged:
        """Block until the exchange is done; raises what it raised."""
        return self._future.result(timeout)


class Collective(ABC):
    """A scheme. It counts the bytes and messages it really sent; its closed-form cost stands in `costs`."""

    name: str

    def __init__(self, group: Group) -> None:
        self.group = group

    @abstractmethod
    def run(self, exchange: Exchange, selector: Selector | None) -> Exchanged:
        """Exchange one buffer, blocking. ``selector`` is None for a dense scheme."""

    def exchange(self, exchange: Exchange, selector: Selector | None = None) -> Handle:
        """Queue one buffer; every rank must queue the same buffers in the same order."""
        return Handle(self.group.submit(lambda: self.run(exchange, selector)))

    def reduce(self, acc: Tensor, ratio: float, selector: Selector | None = None, step: int = 0) -> Tensor:
        """Exchange one buffer and wait: returns the update; ``acc`` becomes the residual. For tests and readers."""
        from trimtab.plan import elements_to_send

        n = acc.numel()
        next_residual, out = torch.empty_like(acc), torch.empty_like(acc)
        self.exchange(
            Exchange(
                grad=acc,
                residual=torch.zeros_like(acc),
                next_residual=next_residual,
                out=out,
                segments=(0, n),
                k=(elements_to_send(ratio, n),),
                step=step,
            ),
            selector,
        ).wait()
        acc.copy_(next_residual)
        return out
