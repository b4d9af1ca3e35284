"""The kernels for CUDA tensors: the fused pass in Triton, the gathers and scatters by torch.

They are tested against the reference on a GPU where there is one, and in Triton's interpreter (TRITON_INTERPRET=1).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from trimtab.kernels.reference import (
    add_bfloat16,
    clear,
    put,
    put_back,
    read_blocks,
    round_to_bfloat16,
    sample,
    scale_into,
    scatter_mean,
    tail,
    take,
    write_blocks,
)
from trimtab.kernels.reference import select_in_place as select_in_place_by_reference
from trimtab.kernels.results import CompactResult

__all__ = [
    "accumulate",
    "add_bfloat16",
    "clear",
    "fused_select",
    "put",
    "put_back",
    "read_blocks",
    "round_to_bfloat16",
    "sample",
    "scale_into",
    "scatter_mean",
    "select_in_place",
    "tail",
    "take",
    "write_blocks",
]

BLOCK = 2048


def fused_select(
    grad: Tensor, residual: Tensor, next_residual: Tensor, threshold: float, capacity: int, offset: int = 0
) -> CompactResult:
    """See `trimtab.kernels.fused_select`."""
    return _launch(grad, residual, next_residual, threshold, capacity, offset)


def select_in_place(acc: Tensor, threshold: float, capacity: int, offset: int = 0) -> CompactResult:
    """See `trimtab.kernels.select_in_place`."""
    return _launch(acc, None, acc, threshold, capacity, offset)


def accumulate(grad: Tensor, residual: Tensor, next_residual: Tensor) -> float:
    """See `trimtab.kernels.accumulate`."""
    return _launch(grad, residual, next_residual, float("inf"), 0, 0).squared_norm_before


def _launch(
    grad: Tensor, residual: Tensor | None, next_residual: Tensor, threshold: float, capacity: int, offset: int
) -> CompactResult:
    n = grad.numel()
    num_blocks = triton.cdiv(n, BLOCK)
    indices = torch.empty(capacity, dtype=torch.int32, device=grad.device)
    values = torch.empty(capacity, dtype=torch.float32, device=grad.device)
    count = torch.zeros(1, dtype=torch.int32, device=grad.device)
    norms = torch.empty((2, num_blocks), dtype=torch.float64, device=grad.device)
    if n > 0:
        kernel: Any = _select_block
        # Triton launches on the thread's current GPU, which on the communication thread would be the first.
        with torch.cuda.device_of(grad):
            kernel[(num_blocks,)](
                grad,
                grad if residual is None else residual,
                next_residual,
                indices,
                values,
                count,
                norms,
                threshold,
                n,
                capacity,
                offset,
                num_blocks,
                HAS_RESIDUAL=residual is not None,
                BLOCK=BLOCK,
            )
    num_over, before, after = torch.cat([count.double(), norms.sum(1)]).tolist()  # the one wait for the device
    if num_over > capacity:  # the blocks that came first were sent, which may be others the next time
        put(next_residual, indices - offset, values)
        return select_in_place_by_reference(next_residual, threshold, capacity, offset)
    num_sent = int(num_over)
    order = indices[:num_sent].argsort()
    return CompactResult(indices[:num_sent][order], values[:num_sent][order], num_sent, before, after)


def _select_block_source(  # type: ignore[no-untyped-def]  # Triton reads annotations as code
    grad,
    residual,
    next_residual,
    indices,
    values,
    count,
    norms,
    threshold,
    n,
    capacity,
    offset,
    num_blocks,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One block: one atomic reserves its places among the compacted, a scan of the hits numbers them."""
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    acc = tl.load(grad + at, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        acc += tl.load(residual + at, mask=inside, other=0.0)
    over = (tl.abs(acc) >= threshold) & inside
    hits = over.to(tl.int32)
    place = tl.atomic_add(count, tl.sum(hits)) + tl.cumsum(hits) - 1
    sent = over & (place < capacity)
    tl.store(indices + place, at + offset, mask=sent)
    tl.store(values + place, acc, mask=sent)
    kept = tl.where(sent, 0.0, acc)
    tl.store(next_residual + at, kept, mask=inside)
    acc_wide, kept_wide = acc.to(tl.float64), kept.to(tl.float64)
    tl.store(norms + block, tl.sum(acc_wide * acc_wide))
    tl.store(norms + num_blocks + block, tl.sum(kept_wide * kept_wide))


_select_block: Any = triton.jit(_select_block_source)
