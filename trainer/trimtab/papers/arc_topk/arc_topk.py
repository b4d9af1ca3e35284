"""ARC-Top-K: blocks with the largest sketched norms, the same on every rank without an index sent (arXiv 2510.26709).

Every rank projects each block of acc on a random direction, the same on all ranks. The projection is linear, so the
ranks' sketches add up to the sketch of their sum, whose size shows all of them which blocks weigh most in the mean.
Only values at these blocks are all-reduced.

The paper all-reduces the sketch, of four directions. Here ranks all-gather it and add it up: over a ring it would take
2 (N-1) messages more, as many as its values. One direction with blocks a quarter as long got as much through, at the
same size of sketch (table `schemes` of benchmarks/results). Cost: [log2 N + 2 (N-1)] alpha + (N-1) (1 + 2/N) M c beta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from trimtab_api.catalogue.costs import ARC_FEWEST_BLOCKS, ARC_SKETCH_SHARE

from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared
from trimtab.collectives.sparse_parts import mean_at
from trimtab.transport.primitives import all_gather
from trimtab.transport.timer import LapTimer

if TYPE_CHECKING:
    from trimtab.sparsifiers.base import Selector
    from trimtab.transport.base import Transport


@dataclass(frozen=True)
class Sketched(Prepared):
    """A rank's blocks, projected on this step's direction."""

    num_sent: int
    """Number of blocks to send."""
    block: int
    """Number of elements of a block."""
    sketch: Tensor
    """float32 [ceil(n / block)]."""
    timer: LapTimer


class ArcTopk(Collective):
    """All ranks send acc at the same whole blocks, and clear their residual there; at most k elements in all.

    It selects blocks of the whole buffer, whatever its segments are, and asks no sparsifier. It carries no state.
    """

    def prepare(self, exchange: Exchange, selector: Selector | None) -> Sketched:
        """Accumulate, and project each block on this step's direction."""
        timer = LapTimer(exchange.out.device)
        acc = exchange.next_residual
        before = kernels.accumulate(exchange.grad, exchange.residual, acc)
        n = acc.numel()
        num_sent, block = blocks_of(n, min(n, sum(exchange.k)))
        direction = _direction(exchange, block).to(acc.device)
        num_whole = n // block
        sketch = acc.new_zeros(-(-n // block))
        torch.mv(acc[: num_whole * block].view(num_whole, block), direction, out=sketch[:num_whole])
        if num_whole * block < n:
            sketch[num_whole] = acc[num_whole * block :] @ direction[: n - num_whole * block]
        timer.compressed()
        return Sketched(before, num_sent, block, sketch, timer)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Gather the sketches, choose blocks by their sum, and all-reduce the values there."""
        assert isinstance(prepared, Sketched)
        residual, timer, num_bytes = exchange.next_residual, prepared.timer, transport.num_bytes
        timer.resume()
        sketches, gathering = all_gather(transport, prepared.sketch.view(torch.uint8))
        timer.communicated()

        total = torch.zeros_like(prepared.sketch)
        for sketch in sketches:  # in rank order, so that all choose by the same bits
            total += sketch.view(torch.float32)
        chosen = torch.sort(total.abs(), descending=True, stable=True).indices[: prepared.num_sent].sort().values
        offsets = torch.arange(prepared.block, dtype=torch.int64, device=residual.device)
        indices = (chosen[:, None] * prepared.block + offsets).flatten().to(torch.int32)
        indices = indices[indices < residual.numel()]
        values = kernels.take(residual, indices)
        cleared = kernels.clear(residual, indices)
        timer.compressed()

        reducing, kept = mean_at(exchange, transport, indices, values, vote, timer)
        return Exchanged(
            sent=indices,
            num_selected=indices.numel(),
            squared_norm_before=prepared.squared_norm_before,
            squared_norm_after=max(0.0, prepared.squared_norm_before - cleared) + kept,
            num_bytes=transport.num_bytes - num_bytes,
            num_messages=gathering + reducing,
            vote=vote,
            compress_seconds=timer.compress_seconds,
            collective_seconds=timer.collective_seconds,
        )


def blocks_of(n: int, k: int) -> tuple[int, int]:
    """Return how many blocks make k of n elements, and the elements of each.

    These are the finest blocks whose sketch is no larger than `ARC_SKETCH_SHARE` of the values, but at least
    `ARC_FEWEST_BLOCKS`: of few and long blocks little is chosen that weighs more than the rest.
    """
    if k == n:
        return 1, n
    num_sent = min(k, max(ARC_FEWEST_BLOCKS, int(ARC_SKETCH_SHARE * k * k / n)))
    return num_sent, k // num_sent


def _direction(exchange: Exchange, block: int) -> Tensor:
    """Draw a normal direction (float32 [block]), the same on every rank, another in every step and buffer."""
    random = torch.Generator().manual_seed(1_000_003 * exchange.step + exchange.start)
    return torch.randn(block, dtype=torch.float32, generator=random)
