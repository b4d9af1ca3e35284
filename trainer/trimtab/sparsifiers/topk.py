"""Exact top-k: the reference of the other sparsifiers, and slow (a quarter of a second for ten million elements).

With one segment a tensor it is the layer-wise top-k, LWTopk.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trimtab import kernels
from trimtab.kernels import CompactResult, FlatGrad
from trimtab.sparsifiers.base import SegmentSelector, Selected, selected, taken


class TopK(SegmentSelector):
    """Selects exactly the k elements of largest magnitude in each segment; it carries no state."""

    name = "topk"

    def _select_segment(
        self, grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int, offset: int, start: int
    ) -> CompactResult:
        return select_exactly(grad, residual, next_residual, k, offset)

    def take(self, acc: Tensor, k: int, key: tuple[int, int]) -> Selected:
        """See `Selector.take`."""
        return selected(top_k_in_place(acc, k, kernels.squared_norm(acc), offset=0))


def select_exactly(grad: FlatGrad, residual: Tensor, next_residual: Tensor, k: int, offset: int) -> CompactResult:
    """Take the k elements of acc of largest magnitude; among equals at the boundary any may be taken."""
    return top_k_in_place(next_residual, k, kernels.accumulate(grad, residual, next_residual), offset)


def top_k_in_place(acc: Tensor, k: int, squared_norm: float, offset: int) -> CompactResult:
    """Take the k elements of largest magnitude out of ``acc``, which becomes the new residual.

    NaN counts as the largest, so that it is sent and seen.

    Args:
        acc: float32 [n].
        k: Elements to take.
        squared_norm: Sum of squares of ``acc``.
        offset: Added to the returned indices.
    """
    n = acc.numel()
    if k >= n:
        everything = CompactResult(
            torch.arange(offset, offset + n, dtype=torch.int32, device=acc.device), acc.clone(), n, squared_norm, 0.0
        )
        acc.zero_()
        return everything
    magnitudes = acc.abs()
    found = kernels.select_in_place(acc, kth_largest(magnitudes, k), k, offset)
    if found.num_over == k:
        return found
    # Equals at the boundary, or NaN, which reaches no threshold.
    kernels.put(acc, found.indices - offset, found.values)
    chosen = torch.topk(magnitudes, k, sorted=False).indices.to(torch.int32).sort().values
    return taken(acc, chosen, squared_norm, offset)


def kth_largest(values: Tensor, k: int) -> float:
    """Return the k-th largest of ``values`` (float32 [m], k <= m); NaN counts as the largest."""
    if values.device.type == "cpu":  # numpy's partition is ten times as fast as torch's
        return float(np.partition(values.numpy(), values.numel() - k)[-k])
    return float(torch.topk(values, k, sorted=False).values.min())
