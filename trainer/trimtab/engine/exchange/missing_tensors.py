"""Which tensors a step sends nothing of: behind fusion, those whose gradients are small (SAFusion, section 2.4)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from trimtab.engine.gradients.flat_buffers import BufferRange


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
