"""What one rank's engine holds between two steps, to look at: for tests, and for people who ask where a gradient is.

A gradient is in one of four places until it has moved the weights: the *residual*, which compression holds back; what
*waits* in its bucket, under a schedule that sends it later; what has *arrived*, as a mean over ranks, and no update has
taken; and what is *set aside* while its parameter is frozen.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from trimtab.engine.exchange.buckets import Bucket, Held
from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.gradients.flat_buffers import FlatBuffers

#: How far the exchange of a step has come.
ExchangePhase = Literal["idle", "exchanging", "exchanged"]


@dataclass(frozen=True)
class DebugState:
    """A copy: training does not change it, and changing it does not change training.

    Tensors are by the names of trainable parameters, in the parameters' shapes and in backward order (the last
    parameter first). Of a single process, which exchanges nothing, all of it is empty.
    """

    residual: Mapping[str, Tensor] = field(default_factory=dict)
    """Residuals of compression on this rank, as of the last step that was kept; of all parameters."""
    waiting: Mapping[str, Tensor] = field(default_factory=dict)
    """This rank's gradients that have not been sent, summed over steps; of parameters that have any."""
    arrived: Mapping[str, Tensor] = field(default_factory=dict)
    """Means over ranks that no update has taken, summed over steps; of parameters that have any."""
    set_aside: Mapping[str, Tensor] = field(default_factory=dict)
    """Residuals of frozen parameters, which are taken up again when these learn again."""
    anchor: Mapping[str, Tensor] = field(default_factory=dict)
    """Weights with which the present round of local steps began; empty where gradients are exchanged."""
    late: tuple[str, ...] = ()
    """Parameters that have yet to be stepped, as their means arrive in the next forward pass."""
    phase: ExchangePhase = "idle"
    """Phase of the present step: no gradient has been sent; some have; all means that it waits for have arrived."""
    num_sent: int = 0
    """Exchanges of the present step, or of the round before under overlap, that have been sent."""
    schemes: Mapping[str, Any] = field(default_factory=dict)
    """State of collectives, sparsifiers, momentum correction and the outer optimizer, by kind and name."""


@torch.no_grad()
def debug_state(exchanger: Exchanger, anchor: Tensor | None) -> DebugState:
    """Return a snapshot without waiting: what is under way counts neither as waiting nor as arrived.

    Args:
        exchanger: Holds everything but the anchor.
        anchor: Weights with which the present round began (float32 [n]); None where gradients are exchanged.
    """
    flat_buffers = exchanger.flat_buffers
    return DebugState(
        residual=_by_name(flat_buffers, flat_buffers.residual),
        waiting=_held(flat_buffers, ((bucket, bucket.waiting) for bucket in exchanger.buckets)),
        arrived=_held(flat_buffers, ((bucket, bucket.arrived) for bucket in exchanger.buckets)),
        set_aside=_set_aside(flat_buffers),
        anchor={} if anchor is None else _by_name(flat_buffers, anchor),
        late=_late(flat_buffers, exchanger),
        phase=_phase(exchanger),
        num_sent=len(exchanger.pending_exchanges),
        schemes=copy.deepcopy(exchanger.schemes.state_dict()),
    )


def _by_name(flat_buffers: FlatBuffers, flat: Tensor, indices: Iterable[int] | None = None) -> dict[str, Tensor]:
    """Return parts of ``flat`` (float32 [n]) by parameter name; ``indices`` None: of all parameters."""
    views = flat_buffers.views_of(flat)
    chosen = range(len(views)) if indices is None else sorted(indices)
    return {flat_buffers.names[index]: views[index].clone() for index in chosen}


def _held(flat_buffers: FlatBuffers, buckets: Iterable[tuple[Bucket, list[Held]]]) -> dict[str, Tensor]:
    """Sum what buckets hold, by the name of each parameter with a part in a bucket that holds something."""
    total, some = torch.zeros_like(flat_buffers.residual), set[int]()
    for bucket, held in buckets:
        for each in held:
            total[bucket.span.start : bucket.span.stop] += each.values
            some.update(range(bucket.span.first, bucket.span.last))
    return _by_name(flat_buffers, total, some)


def _set_aside(flat_buffers: FlatBuffers) -> dict[str, Tensor]:
    total = torch.zeros_like(flat_buffers.residual)
    for index, kept in flat_buffers.set_aside.items():
        total[flat_buffers.offsets[index] : flat_buffers.offsets[index + 1]] = kept
    return _by_name(flat_buffers, total, flat_buffers.set_aside)


def _late(flat_buffers: FlatBuffers, exchanger: Exchanger) -> tuple[str, ...]:
    spans = [pending_exchange.span for pending_exchange in exchanger.late()]
    indices = {index for span in spans for index in range(span.first, span.last)}
    return tuple(flat_buffers.names[index] for index in sorted(indices))


def _phase(exchanger: Exchanger) -> ExchangePhase:
    if exchanger.outcome is not None:
        return "exchanged"
    return "exchanging" if exchanger.is_mid_step else "idle"
