"""A collective of one's own: in each step another stripe of the gradient is all-reduced, without indices on the wire.

Copy it to add one: `prepare` compresses and `run` communicates, the row says what the others must know.
"""

import torch
from torch import Tensor
from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared
from trimtab.transport.base import Transport
from trimtab.transport.primitives import ring_all_reduce
from trimtab.transport.timer import LapTimer
from trimtab_api import catalogue


class Stripes(Collective):
    """Sends the elements whose index leaves the remainder step of a division by n / k."""

    def prepare(self, exchange: Exchange, selector: object) -> Prepared:
        return Prepared(kernels.accumulate(exchange.grad, exchange.residual, exchange.next_residual))

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        n, sent, timer = exchange.out.numel(), transport.num_bytes, LapTimer(exchange.out.device)
        stride = max(1, n // sum(exchange.k))
        indices = torch.arange(exchange.step % stride, n, stride, dtype=torch.int32)
        values = kernels.take(exchange.next_residual, indices)
        removed = kernels.clear(exchange.next_residual, indices)
        timer.compressed()
        num_messages = ring_all_reduce(transport, [values, vote])
        timer.communicated()
        kernels.scatter_mean(exchange.out, [(indices, values)], 1 / transport.size)
        timer.compressed()
        return Exchanged(
            sent=indices,
            num_selected=indices.numel(),
            squared_norm_before=prepared.squared_norm_before,
            squared_norm_after=max(0.0, prepared.squared_norm_before - removed),
            num_bytes=transport.num_bytes - sent,
            num_messages=num_messages,
            vote=vote,
            compress_seconds=timer.compress_seconds,
            collective_seconds=timer.collective_seconds,
        )


def register() -> None:
    """What the entry point of group ``trimtab.schemes`` names."""
    catalogue.collectives.add(
        catalogue.Collective(
            "stripes",
            "another stripe of the gradient in each step",
            "stripes:Stripes",
            family="stripes",
            cost=lambda M, c, N: catalogue.costs.ring_all_reduce(M * c, N),
            rank_count_error=lambda N: "is meant for at most 8 ranks; use all-gather" if N > 8 else None,
            shares_indices=True,
            pattern="ring",
        )
    )
