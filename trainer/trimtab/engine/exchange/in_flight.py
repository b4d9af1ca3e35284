"""The exchanges of one iteration that are under way, in the order in which they were sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trimtab.collectives.base import Exchanged, Handle
from trimtab.engine.exchange.buckets import Bucket, Held
from trimtab.engine.exchange.consensus import ExchangeSummary
from trimtab.engine.gradients.flat_buffers import BufferRange, FlatBuffers
from trimtab.engine.gradients.gather import Gradients
from trimtab.kernels import FlatGrad
from trimtab.plan.schedules import Send

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Payload:
    """Payload of one exchange."""

    grad: FlatGrad
    """float32 [n]: the sum of what is sent."""
    out: Tensor
    """float32 [n]: where its mean is to arrive."""
    waited: tuple[Held, ...]
    """The part that has waited in the bucket."""
    has_present: bool
    """True if the gradients of the present iteration are in it."""

    @property
    def count(self) -> int:
        """Number of iterations whose gradients are added up."""
        return sum(held.count for held in self.waited) + self.has_present


def payload_of(bucket: Bucket, send: Send, flat_buffers: FlatBuffers, present: Gradients | None) -> Payload:
    """Return what ``send`` carries of ``bucket``.

    Args:
        bucket: The bucket.
        send: One send of the schedule.
        flat_buffers: Where the mean arrives, if this iteration's gradients are sent.
        present: The gradients of this iteration, if they are part of it; else None.
    """
    waited = tuple(bucket.waiting_up_to(send.iteration))
    span = bucket.span
    if present is None:
        first, *others = [held.values for held in waited] or [flat_buffers.grad.new_zeros(span.num_elements)]
        total = sum(others, first)  # one alone is not copied, for an exchange only reads it
        return Payload(total, torch.empty_like(total), waited, has_present=False)
    out = flat_buffers.grad[span.start : span.stop]
    for held in waited:  # then nothing of the bucket is lent
        out += held.values
    return Payload(present.of(span), out, waited, has_present=True)


@dataclass(frozen=True, eq=False)
class PendingExchange:
    """One bucket's exchange."""

    send: Send
    bucket: Bucket
    payload: Payload
    handle: Handle

    @property
    def span(self) -> BufferRange:
        """Elements and tensors of the bucket."""
        return self.bucket.span

    def forget_non_finite(self) -> None:
        """Zero gradients that waited and are not finite, so that they make ranks drop no further step."""
        for held in self.payload.waited:
            if not held.is_finite:
                held.values.zero_()


class PendingExchanges(list[PendingExchange]):
    """The exchanges of one iteration, in the order in which they were sent."""

    def wait(self) -> tuple[Exchanged, ...]:
        """Wait for all, and return what each brought."""
        return tuple(pending_exchange.handle.wait() for pending_exchange in self)

    def forget_non_finite(self) -> None:
        """Zero gradients that waited and are not finite, of all exchanges."""
        for pending_exchange in self:
            pending_exchange.forget_non_finite()

    @property
    def are_over(self) -> bool:
        """True if all exchanges are over."""
        return all(pending_exchange.handle.is_over for pending_exchange in self)

    @property
    def ended_at(self) -> float:
        """Time at which the last exchange was over, by `time.perf_counter`."""
        return max(pending_exchange.handle.ended_at for pending_exchange in self)

    def summary(self, previous_end: float | None) -> ExchangeSummary:
        """Summarize the exchanges for the next vote.

        Args:
            previous_end: The `ended_at` of the exchanges before, in seconds; None without any.
        """
        exchanged: Sequence[Exchanged] = self.wait()
        arrival = self[-1].handle.prepared_at
        return ExchangeSummary(
            squared_norm_before=sum(each.squared_norm_before for each in exchanged),
            squared_norm_after=sum(each.squared_norm_after for each in exchanged),
            arrival_seconds=0.0 if previous_end is None else arrival - previous_end,
            collective_seconds=sum(each.collective_seconds for each in exchanged),
        )
