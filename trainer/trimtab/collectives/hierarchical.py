"""Two levels: the ranks of each host sum everything among themselves, and any collective sums between the hosts.

Each of a host's P ranks has a P-th of the buffer. The host's ranks reduce-scatter their gradients. Each rank then
exchanges its part with the ranks of the other hosts that have the same part, and sends the result to the ranks of its
host. All ranks of a host select, and no byte crosses between hosts twice (docs/adr/0010-two-level-collectives.md).

Cost: that of the collective between N / P hosts, and inside a host a ring's reduce-scatter and Bruck's all-gather.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared, Ranges
from trimtab.transport.primitives import all_gather, ring_all_gather, ring_reduce_scatter, share
from trimtab.transport.subgroup import Subgroup
from trimtab.transport.timer import LapTimer
from trimtab.wire.messages import pack_range, write_range_mean
from trimtab.wire.pairs import Pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.sparsifiers.base import Selector
    from trimtab.transport.base import Transport
    from trimtab.transport.group import Group


@dataclass(frozen=True)
class Accumulated(Prepared):
    """A buffer whose acc lies in ``exchange.out``, before the host's ranks sum theirs."""

    selector: Selector | None
    timer: LapTimer


class Hierarchy(Collective):
    """A collective between hosts, on parts of sums over the ranks of each host.

    A rank's residual is that of its host, in its own part of each buffer, and zero elsewhere. The inner collective
    decides what is cleared there. Norms are of the host's sum in this rank's part. The state is the inner collective's,
    whose buffers are the parts.
    """

    def __init__(self, group: Group, between: Callable[[Group], Collective], *, is_dense: bool) -> None:
        """Make the scheme.

        Args:
            group: The ranks that exchange, the same number on each host.
            between: Makes the collective between hosts, of one rank a host.
            is_dense: True if that collective sends every element.
        """
        super().__init__(group)
        self._host = next(ranks for ranks in group.hosts if group.rank in ranks)
        self._place = self._host.index(group.rank)
        self._peers = [ranks[self._place] for ranks in group.hosts]
        self._is_dense = is_dense
        self._between = between(group.part(self._peers))
        self._zeros = torch.empty(0, dtype=torch.float32)

    def prepare(self, exchange: Exchange, selector: Selector | None) -> Accumulated:
        """Accumulate into ``exchange.out``; selection waits for the host's sum."""
        timer = LapTimer(exchange.out.device)
        before = kernels.accumulate(exchange.grad, exchange.residual, exchange.out)
        timer.compressed()
        return Accumulated(before, selector, timer)

    def run(self, exchange: Exchange, prepared: Prepared, transport: Transport, vote: Tensor) -> Exchanged:
        """Sum within the host, exchange this rank's part between hosts, and gather the parts of the host."""
        assert isinstance(prepared, Accumulated)
        out, timer, num_bytes = exchange.out, prepared.timer, transport.num_bytes
        host = Subgroup(transport, self._host)
        start, stop = self._part(0, out.numel())
        timer.resume()
        ring_reduce_scatter(host, out)
        timer.communicated()
        exchange.next_residual[:start].zero_()
        exchange.next_residual[stop:].zero_()
        timer.compressed()
        part = self._exchange_part(exchange, prepared.selector, Subgroup(transport, self._peers), vote)
        timer.resume()
        sent, vote = self._tell(host, out, part, timer)
        return replace(
            part,
            sent=sent,
            num_bytes=transport.num_bytes - num_bytes,
            vote=vote,
            compress_seconds=part.compress_seconds + timer.compress_seconds,
            collective_seconds=part.collective_seconds + timer.collective_seconds,
            figures={**part.figures, "host_bytes": float(host.num_bytes)},
        )

    def _part(self, start: int, stop: int) -> tuple[int, int]:
        """Return this rank's part of a range of the flat buffers, as start and stop."""
        first, end = share(stop - start, self._place, len(self._host))
        return start + first, start + end

    def _exchange_part(
        self, exchange: Exchange, selector: Selector | None, peers: Transport, vote: Tensor
    ) -> Exchanged:
        """Write the mean over hosts of their sums in this rank's part, and the host's new residual there."""
        start, stop = self._part(0, exchange.out.numel())
        if start == stop:  # there is nothing that the votes could travel with
            votes, num_messages = all_gather(peers, vote.view(torch.uint8))
            total = torch.stack([part_vote.view(torch.float32) for part_vote in votes]).sum(0)
            sent = None if self._is_dense else torch.empty(0, dtype=torch.int32, device=vote.device)
            return Exchanged(sent, 0, 0.0, 0.0, 0, num_messages, total, 0.0, 0.0)
        zeros = self._zeros  # links run buckets of several sizes side by side
        if zeros.numel() < stop - start:
            zeros = self._zeros = torch.zeros_like(exchange.out[start:stop])
        inner, k = _segments_in(exchange, start, stop)
        part = replace(
            exchange,
            grad=exchange.out[start:stop],
            residual=zeros[: stop - start],
            next_residual=exchange.next_residual[start:stop],
            out=exchange.out[start:stop],
            segments=inner,
            k=k,
            start=exchange.start + start,
        )
        return self._between.run(part, self._between.prepare(part, selector), peers, vote)

    def _tell(self, host: Transport, out: Tensor, part: Exchanged, timer: LapTimer) -> tuple[Tensor | None, Tensor]:
        """Send the result for this rank's part to the host's ranks, and write the results of theirs.

        Returns:
            Where the host's residual was cleared (int32 [m], None for everywhere), and the sum of all votes.
        """
        n, size = out.numel(), len(self._host)
        start, stop = self._part(0, n)
        own = out[start:stop]
        parts = [part.vote.view(torch.uint8)]
        if self._is_dense:
            own.div_(size)
        else:
            assert part.sent is not None, "a sparse scheme says what it sent"
            indices = own.nonzero().flatten().to(torch.int32)
            mean, _ = pack_range(Pairs(indices, kernels.take(own, indices)), 0, stop - start)
            count = torch.tensor([part.sent.numel()], dtype=torch.int32, device=out.device)
            parts += [piece.view(torch.uint8) for piece in (count, part.sent + start, mean)]
        timer.compressed()
        messages, _ = all_gather(host, torch.cat(parts))
        if self._is_dense:
            ring_all_gather(host, out)
        timer.communicated()

        head = 4 * part.vote.numel()
        vote = torch.stack([message[:head].view(torch.float32) for message in messages]).sum(0)
        if self._is_dense:
            return None, vote
        sent = []
        for (first, end), message in zip(pairwise(_bounds(n, size)), messages, strict=True):
            after = head + 4 + 4 * int(message[head : head + 4].view(torch.int32).item())
            sent.append(message[head + 4 : after].view(torch.int32))
            write_range_mean(message[after:], out[first:end], 0, 1 / size)
        timer.compressed()
        return torch.cat(sent), vote

    def commit(self) -> None:
        """See `Collective.commit`."""
        self._between.commit()

    def discard(self) -> None:
        """See `Collective.discard`."""
        self._between.discard()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the collective between hosts."""
        return self._between.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Collective.load_state_dict`."""
        self._between.load_state_dict(state)

    def rebucket(self, old: Ranges, new: Ranges) -> None:
        """See `Collective.rebucket`.

        A rank's part of a new buffer may lie where another rank's was. State of such a part is learned anew.
        """
        self._between.rebucket(*([self._part(*span) for span in ranges] for ranges in (old, new)))


def _bounds(num_elements: int, size: int) -> list[int]:
    return [share(num_elements, part, size)[0] for part in range(size)] + [num_elements]


def _segments_in(exchange: Exchange, start: int, stop: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the buffer's segments within ``start .. stop-1``, and k for each.

    Returns:
        Offsets from 0 on, and each segment's k, shared out in proportion to its elements.
    """
    offsets, counts = [0], []
    for (first, end), k in zip(pairwise(exchange.segments), exchange.k, strict=True):
        low, high = max(first, start), min(end, stop)
        if low < high:
            offsets.append(high - start)
            counts.append(max(1, k * (high - first) // (end - first) - k * (low - first) // (end - first)))
    return tuple(offsets), tuple(counts)
