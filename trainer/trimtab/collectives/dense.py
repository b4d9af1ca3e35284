"""Dense all-reduce, by ring, tree, or recursive halving and doubling: gradient and residual are sent whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared
from trimtab.transport.base import Transport
from trimtab.transport.group import Group
from trimtab.transport.primitives import all_reduce
from trimtab.transport.rounded_vector import rounding_to
from trimtab.transport.timer import LapTimer

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selector


@dataclass(frozen=True)
class Accumulated(Prepared):
    """A buffer whose share of the mean lies in ``exchange.out``."""

    timer: LapTimer


class DenseAllReduce(Collective):
    """The update is the mean of ``residual + gradient`` over the ranks; the new residual is zero.

    If values are rounded, the new residual is this rank's rounding errors.
    """

    def __init__(self, group: Group, *, shape: str) -> None:
        """Make the scheme.

        Args:
            group: The ranks that exchange.
            shape: One of `ALL_REDUCE`: ``ring``, ``tree`` or ``halving``.
        """
        super().__init__(group)
        self._shape = shape

    def prepare(self, exchange: Exchange, selector: Selector | None) -> Accumulated:
        """Divide acc by N into ``exchange.out``, and zero the residual."""
        timer = LapTimer(exchange.out.device)
        before = kernels.accumulate(exchange.grad, exchange.residual, exchange.out)
        exchange.next_residual.zero_()
        exchange.out.div_(self.group.size)  # before the sum, as DistributedDataParallel does: the same bits
        timer.compressed()
        return Accumulated(before, timer)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """All-reduce ``exchange.out`` and the vote."""
        assert isinstance(prepared, Accumulated)
        timer, out, num_bytes = prepared.timer, exchange.out, transport.num_bytes
        timer.resume()
        rounding, after = rounding_to(exchange.wire, exchange.next_residual), 0.0
        num_messages = all_reduce(transport, self._shape, [out, vote], rounding)
        timer.communicated()
        if rounding is not None:
            rounding.errors.mul_(transport.size)  # they were of the mean
            after = kernels.squared_norm(rounding.errors)
            timer.compressed()
        return Exchanged(
            sent=None,
            num_selected=out.numel(),
            squared_norm_before=prepared.squared_norm_before,
            squared_norm_after=after,
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=num_messages,
            vote=vote,
            compress_seconds=timer.compress_seconds,
            collective_seconds=timer.collective_seconds,
        )
