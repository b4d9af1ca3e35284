"""From gradients to updates of local steps and back: what one source has left behind, the other cannot go on from.

A residual of gradients is in the unit of gradients, one of updates in that of weights. On the way to updates, each
rank's own optimizer makes an update of what the rank holds back, which is the first residual of updates: ranks exchange
nothing. On the way to gradients all that is held back is sent once, whole, and moves the weights. And where optimizers
saw gradients of their own rank, their state is made common, for under gradients it is the same on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.engine.exchange.buckets import Buckets
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.local_sgd.optimizer_state_sync import share_state
from trimtab.engine.optimizer.stepper import OptimizerStepper
from trimtab.transport.group import Group
from trimtab.transport.primitives import ring_all_reduce


@torch.no_grad()
def to_updates(flat_buffers: FlatBuffers, buckets: Buckets, stepper: OptimizerStepper) -> None:
    """Leave source *gradient*: what this rank holds back becomes the update that one optimizer step makes of it.

    The weights stay where they are, alike on all ranks.
    """
    held_back = _held_back(flat_buffers, buckets)
    _add_arrived(held_back, buckets)
    _hold_nothing(flat_buffers, buckets)
    flat_buffers.release_gradients()
    flat_buffers.grad.copy_(held_back)
    # Weight decay and momentum leave alone what nothing is held back of.
    still = set(flat_buffers.all_zero(range(len(flat_buffers.parameters))))
    moved = [
        (parameter, view, residual, parameter.detach().clone())
        for index, (parameter, view, residual) in enumerate(
            zip(flat_buffers.parameters, flat_buffers.views, flat_buffers.views_of(flat_buffers.residual), strict=True)
        )
        if index not in still and parameter.requires_grad
    ]
    for parameter, view, _, _ in moved:
        parameter.grad = view
    if moved:
        stepper.step_unscaled()
    for parameter, _, residual, before in moved:
        torch.sub(before, parameter, out=residual)
        parameter.copy_(before)
    flat_buffers.release_gradients()


@torch.no_grad()
def to_gradients(
    flat_buffers: FlatBuffers, buckets: Buckets, group: Group, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Leave source *update*, where a round has ended: the mean of what is held back goes to the weights as it is."""
    mean = _mean_of_held_back(flat_buffers, buckets, group)
    for parameter, part in zip(flat_buffers.parameters, flat_buffers.views_of(mean), strict=True):
        if parameter.requires_grad:
            parameter.sub_(part)
    share_state(flat_buffers.names, flat_buffers.parameters, optimizers, group)


def _mean_of_held_back(flat_buffers: FlatBuffers, buckets: Buckets, group: Group) -> Tensor:
    """Return residuals and what a delaying schedule let wait, averaged over ranks, float32 [n]; then hold nothing."""
    total = _held_back(flat_buffers, buckets)
    group.submit(lambda: ring_all_reduce(group.transport, [total])).result()
    total /= group.size
    _add_arrived(total, buckets)
    _hold_nothing(flat_buffers, buckets)
    return total


def _held_back(flat_buffers: FlatBuffers, buckets: Buckets) -> Tensor:
    """Return this rank's residual and what a delaying schedule let wait, float32 [n].

    What waits and is not finite is lost, as where it is sent.
    """
    total = flat_buffers.residual.clone()
    for bucket in buckets:
        for held in bucket.waiting:
            if held.is_finite:
                total[bucket.span.start : bucket.span.stop] += held.values
    return total


def _add_arrived(total: Tensor, buckets: Buckets) -> None:
    """Add to ``total`` (float32 [n]) what has arrived and no update has taken: means over ranks, alike on all ranks."""
    for bucket in buckets:
        for held in bucket.arrived:
            total[bucket.span.start : bucket.span.stop] += held.values


def _hold_nothing(flat_buffers: FlatBuffers, buckets: Buckets) -> None:
    buckets.clear()
    flat_buffers.residual.zero_()
    flat_buffers.set_aside.clear()  # of frozen tensors, which nothing may move: no unit would be right for what it was
