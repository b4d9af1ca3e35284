"""Compile every kernel before training starts, so that no training step pays for it."""

from __future__ import annotations

import torch

from trimtab import kernels

#: Enough elements that every branch of the kernels is reached.
NUM_ELEMENTS = 1 << 19


def warm_up(device: torch.device) -> None:
    """Run each kernel once on a small tensor; what is compiled is cached on disk where the device's compiler can."""
    generator = torch.Generator().manual_seed(0)
    grad = torch.randn(NUM_ELEMENTS, dtype=torch.float32, generator=generator).to(device)
    residual, next_residual = torch.zeros_like(grad), torch.empty_like(grad)
    kernels.scale_into(grad, next_residual, 1.0)
    kernels.sample(grad, residual, 64)
    kernels.accumulate(grad, residual, next_residual)
    kernels.tail(grad, 2.5)
    kernels.select_in_place(next_residual, 2.5, NUM_ELEMENTS)
    selected = kernels.fused_select(grad, residual, next_residual, 2.5, NUM_ELEMENTS)
    values = kernels.take(grad, selected.indices)
    kernels.clear(next_residual, selected.indices)
    kernels.put(next_residual, selected.indices, values)
    kernels.put_back(next_residual, selected.indices, values, 1, float(values.abs().max()), 0)
    kernels.scatter_mean(grad, [(selected.indices, values)], 0.5)
    kernels.add_bfloat16(grad, kernels.round_to_bfloat16(next_residual, residual))
    for bits in (8, 4, 2):
        kernels.read_blocks(kernels.write_blocks(values, bits), bits, values)
