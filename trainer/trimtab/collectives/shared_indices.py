"""Where all ranks send the same elements, values alone are summed: what schemes that agree on indices end with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trimtab import kernels
from trimtab.transport.primitives import all_reduce
from trimtab.transport.rounded_vector import rounding_to
from trimtab.wire.value_formats import put_errors

if TYPE_CHECKING:
    from torch import Tensor

    from trimtab.collectives.base import Exchange
    from trimtab.transport.base import Transport
    from trimtab.transport.timer import LapTimer


def mean_at(
    exchange: Exchange,
    transport: Transport,
    indices: Tensor,
    values: Tensor,
    vote: Tensor,
    timer: LapTimer,
    shape: str = "ring",
) -> tuple[int, float]:
    """Write the mean over ranks of ``values`` (float32 [m]) at ``indices``, which all ranks share, to ``exchange.out``.

    ``vote`` comes back summed, and so do the values. What the plan's wire format rounds away stays in the residual,
    which is zero at the indices. Returns the messages of the longest chain, and the squared norm of what stays.
    """
    rounding = rounding_to(exchange.wire, torch.zeros_like(values))
    num_messages = all_reduce(transport, shape, [values, vote], rounding)
    timer.communicated()
    kept = 0.0 if rounding is None else put_errors(exchange.next_residual, indices, rounding.errors)
    kernels.scatter_mean(exchange.out, [(indices, values)], 1 / transport.size)
    timer.compressed()
    return num_messages, kept
