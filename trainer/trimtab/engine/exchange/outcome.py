"""What a step's exchanges brought, before it is committed or dropped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trimtab.collectives.base import Exchanged
from trimtab.engine.exchange.consensus import StepConsensus
from trimtab.engine.exchange.in_flight import PendingExchanges
from trimtab.engine.gradients.flat_buffers import BufferRange, FlatBuffers


@dataclass(frozen=True)
class Outcome:
    """Outcome of one step on this rank, with what all ranks agreed on."""

    consensus: StepConsensus | None
    """None where the schedule sent nothing: such a step is always finite, and nothing follows it."""
    arrived: PendingExchanges
    """Exchanges that have arrived since the last step was told of: of this step, and late ones of the step before."""
    updates: bool
    """True if the schedule lets the optimizer step."""
    non_finite: tuple[str, ...] = ()
    """Names of this rank's parameters whose gradients made all ranks drop the step, or this one its local step."""
    sent: PendingExchanges = field(default_factory=PendingExchanges)
    """Exchanges that this step sent; some may arrive late."""

    @classmethod
    def of_local_step(cls, non_finite: tuple[str, ...]) -> Outcome:
        """Return the outcome of a local step, in which nothing was exchanged."""
        return cls(None, PendingExchanges(), updates=not non_finite, non_finite=non_finite)

    @property
    def exchanged(self) -> tuple[Exchanged, ...]:
        """Results of the exchanges that have arrived since the last step was told of."""
        return self.arrived.wait()

    @property
    def is_finite(self) -> bool:
        """True if all that was sent was finite on every rank."""
        return self.consensus is None or self.consensus.finite

    @property
    def compress_seconds(self) -> float:
        """Selection, packing and unpacking, summed over buffers."""
        return sum(e.compress_seconds for e in self.exchanged)

    @property
    def collective_seconds(self) -> float:
        """Sending and waiting, summed over buffers."""
        return sum(e.collective_seconds for e in self.exchanged)

    @property
    def num_bytes(self) -> int:
        """Bytes this rank sent."""
        return sum(e.num_bytes for e in self.exchanged)

    @property
    def num_messages(self) -> int:
        """Messages on the longest chain, summed over buffers."""
        return sum(e.num_messages for e in self.exchanged)

    @property
    def missing_rate(self) -> float | None:
        """The share of tensors in all that arrived of which no element was sent; None where nothing arrived."""
        return missing_rate(
            (pending_exchange.span, pending_exchange.handle.wait().sent) for pending_exchange in self.arrived
        )

    @property
    def achieved_ratio(self) -> float | None:
        """The share of elements that this rank put on the wire, of those in all that arrived; None where nothing did.

        It exceeds the plan's where a scheme sends elements more than once.
        """
        size = sum(pending_exchange.span.stop - pending_exchange.span.start for pending_exchange in self.arrived)
        return (
            sum(pending_exchange.handle.wait().num_selected for pending_exchange in self.arrived) / size
            if size
            else None
        )

    @property
    def residual_norm(self) -> float:
        """Norm of what this rank's exchanges left as residual."""
        return float(sum(e.squared_norm_after for e in self.exchanged) ** 0.5)

    @property
    def figures(self) -> dict[str, float]:
        """Figures that the scheme measured of itself, as means over the buffers that have them."""
        names = {name for e in self.exchanged for name in e.figures}
        said = {name: [e.figures[name] for e in self.exchanged if name in e.figures] for name in sorted(names)}
        return {name: sum(values) / len(values) for name, values in said.items()}


def non_finite_parameters(
    flat_buffers: FlatBuffers, pending_exchanges: PendingExchanges, is_dense: bool
) -> tuple[str, ...]:
    """Return the names of this rank's parameters whose accumulation is not finite, judged by the next residual.

    Gradients were consumed by the exchange, and a dense scheme leaves no residual: then the update is judged.
    """
    if all(e.squared_norm_before - e.squared_norm_before == 0 for e in pending_exchanges.wait()):
        return ()
    kept = [] if is_dense else flat_buffers.not_finite(flat_buffers.next_residual)
    names = tuple(
        flat_buffers.names[index] for index in kept or flat_buffers.not_finite(flat_buffers.grad)
    )  # all of it may have been sent
    return names or ("a sum of squares",)


def missing_rate(sent: Iterable[tuple[BufferRange, Tensor | None]]) -> float | None:
    """Return the share of the tensors in these buffers of which no element was sent; None without a buffer.

    Args:
        sent: Each buffer, with where its residual was cleared: int32 [m], by offset in the buffer; None: everywhere.
    """
    reached: dict[int, bool] = {}
    for span, indices in sent:
        has_any = [True] * (span.last - span.first) if indices is None else _has_any(span.segments, indices)
        for tensor, has in enumerate(has_any, span.first):
            reached[tensor] = reached.get(tensor, False) or has  # a tensor may lie in two buffers
    return 1 - sum(reached.values()) / len(reached) if reached else None


def _has_any(segments: tuple[int, ...], indices: Tensor) -> list[bool]:
    """Return, of each segment, whether an index lies in it."""
    bounds = torch.tensor(segments, dtype=indices.dtype, device=indices.device)
    if bool((indices[1:] >= indices[:-1]).all()):  # as selectors leave them: then few are looked at
        has_any = torch.searchsorted(indices, bounds).diff() > 0
    else:
        has_any = torch.zeros(len(segments) - 1, dtype=torch.bool, device=indices.device)
        has_any[torch.bucketize(indices, bounds[1:-1], right=True)] = True
    return [bool(has) for has in has_any.tolist()]
