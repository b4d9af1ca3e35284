"""What the optimizer sees of an iteration, and what stays in the buckets for later ones."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from trimtab.engine.exchange.buckets import Bucket, Buckets, Held
from trimtab.engine.exchange.in_flight import PendingExchange, PendingExchanges
from trimtab.engine.gradients.flat_buffers import BufferRange, FlatBuffers
from trimtab.plan.schedules import Iteration


class GradientWriter:
    """Computes the gradients that the optimizer will see. Bucket state changes only in `commit`."""

    def __init__(
        self,
        flat_buffers: FlatBuffers,
        buckets: Buckets,
        pending_exchanges: PendingExchanges,
        iteration: Iteration,
        number: int,
        frozen: frozenset[int],
    ) -> None:
        """Prepare to write an iteration's gradients, once its exchanges are over.

        Args:
            flat_buffers: Where gradients are written.
            buckets: The buckets of the fusion plan.
            pending_exchanges: The iteration's exchanges.
            iteration: What the schedule sends and updates in it.
            number: The iteration's number, as the schedule counts.
            frozen: Frozen tensors, by index, which get nothing.
        """
        self._flat_buffers, self._buckets, self._frozen = flat_buffers, buckets, frozen
        self._iteration, self._number = iteration, number
        self._flights: dict[int, PendingExchange] = {
            pending_exchange.send.bucket: pending_exchange for pending_exchange in pending_exchanges
        }
        self._pending: dict[int, Held] = {}
        """By bucket: gradients of this iteration that were not sent."""
        self._kept: dict[int, list[Held]] = {}
        """By bucket: means that no update has taken."""
        self._aside: list[tuple[int, int, Tensor]] = []
        """Means that frozen tensors do not get: tensor, first element, and the mean."""

    def gives(self, number: int) -> bool:
        """Return whether the optimizer gets anything of bucket ``number``, even if not all of it has arrived."""
        update, pending_exchange = self._iteration.update, self._flights.get(number)
        arrived = [held.last for held in self._buckets[number].arrived]
        return (
            update is not None
            and min([*arrived, *([] if pending_exchange is None else [pending_exchange.send.iteration])]) <= update
        )

    def write(self, buckets: Iterable[int], *, averages: bool) -> set[int]:
        """Write the gradient that the optimizer is to see: the mean over ranks of all that its update takes.

        Args:
            buckets: Numbers of the buckets to write.
            averages: Whether the update is the mean over the iterations that it takes.

        Returns:
            The tensors, by index, of which the optimizer gets something in these buckets.
        """
        with_any: set[int] = set()
        for number in buckets:
            bucket = self._buckets[number]
            if self._write_bucket(number, bucket, averages):
                with_any.update(range(bucket.span.first, bucket.span.last))
        return with_any - self._frozen

    def _write_bucket(self, number: int, bucket: Bucket, averages: bool) -> bool:
        """Write one bucket's gradient; return whether the optimizer gets anything of the bucket."""
        grad = self._flat_buffers.grad[bucket.span.start : bucket.span.stop]
        pending_exchange, update = self._flights.get(number), self._iteration.update
        arrived = list(bucket.arrived)
        is_in_place = pending_exchange is not None and pending_exchange.payload.has_present
        if pending_exchange is not None:
            arrived.append(
                Held(pending_exchange.send.iteration, pending_exchange.payload.count, pending_exchange.payload.out)
            )
        taken = [held for held in arrived if update is not None and held.last <= update]
        if is_in_place and len(arrived) == len(taken) == 1 and not (averages and taken[0].count > 1):
            if pending_exchange is not None and pending_exchange.payload.waited:  # else a frozen tensor's is zero
                self._set_aside(bucket.span, grad)
            return True
        if not is_in_place:
            self._pending[number] = Held(self._number, 1, grad.clone())
        elif not taken or taken[-1] is not arrived[-1]:
            arrived[-1].values = grad.clone()
        self._kept[number] = [held for held in arrived if all(held is not one for one in taken)]
        if not taken:
            grad.zero_()
            return False
        share = 1 / max(1, sum(held.count for held in taken)) if averages else 1.0
        torch.mul(taken[-1].values, share, out=grad)  # which may lie there already
        for held in taken[:-1]:
            grad.add_(held.values, alpha=share)
        self._set_aside(bucket.span, grad)
        return True

    def _set_aside(self, span: BufferRange, grad: Tensor) -> None:
        """Take frozen tensors' parts from the bucket's gradient: these were computed while the tensors learned."""
        for index in self._frozen.intersection(range(span.first, span.last)):
            start, stop = self._flat_buffers.offsets[index : index + 2]
            first, last = max(start, span.start), min(stop, span.stop)
            part = grad[first - span.start : last - span.start]
            self._aside.append((index, first, part.clone()))
            part.zero_()

    def commit(self) -> None:
        """Leave in each bucket what later iterations need."""
        for number, bucket in enumerate(self._buckets):
            bucket.arrived = self._kept.get(number, [])
            if (pending_exchange := self._flights.get(number)) is not None:
                sent = pending_exchange.payload.waited
                bucket.waiting = [held for held in bucket.waiting if all(held is not one for one in sent)]
            if (pending := self._pending.get(number)) is not None:
                bucket.add(pending, joins=self._iteration.joins)
        for index, first, part in self._aside:
            self._flat_buffers.keep_frozen_residual(index, first, part)
