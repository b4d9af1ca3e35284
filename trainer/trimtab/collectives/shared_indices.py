"""Where all ranks send the same elements, values alone are summed: what schemes that agree on indices end with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab import kernels
from trimtab.collectives.primitives import all_reduce

if TYPE_CHECKING:
    from torch import Tensor

    from trimtab.collectives.base import Exchange
    from trimtab.collectives.stopwatch import Stopwatch
    from trimtab.collectives.transport import Transport


def mean_at(
    exchange: Exchange,
    transport: Transport,
    indices: Tensor,
    values: Tensor,
    vote: Tensor,
    stopwatch: Stopwatch,
    shape: str = "ring",
) -> int:
    """Write the mean over ranks of ``values`` (float32 [m]) at ``indices``, which all ranks share, to ``exchange.out``.

    ``vote`` comes back summed, and so do the values. Returns the messages of the longest chain.
    """
    num_messages = all_reduce(transport, shape, [values, vote])
    stopwatch.communicated()
    kernels.scatter_mean(exchange.out, [(indices, values)], 1 / transport.size)
    stopwatch.compressed()
    return num_messages
