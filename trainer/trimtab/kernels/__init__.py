"""The passes over memory that compression costs, each in three forms that agree.

`reference` is plain torch, the oracle; `cpu` is compiled by numba and runs without the interpreter's lock, one thread
a call; `gpu` is Triton. The functions here pick by the device of the tensors they are given. All tensors are flat,
contiguous float32 of shape [n] unless a docstring says otherwise; indices are int32, unique and ascending within one
tensor. A `FlatGrad` may lie in several tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from trimtab.kernels.chunked_tensor import ChunkedTensor, FlatGrad
from trimtab.kernels.results import CompactResult, Tail

__all__ = [
    "ChunkedTensor",
    "CompactResult",
    "FlatGrad",
    "Tail",
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
    "squared_norm",
    "tail",
    "take",
    "write_blocks",
]


def scale_into(source: Tensor, target: Tensor, scale: float) -> None:
    """Write ``target`` = scale * source, for a gradient that enters the flat buffers; scale 1 copies the bits."""
    _backend(source).scale_into(source, target, scale)


def fused_select(
    grad: FlatGrad, residual: Tensor, next_residual: Tensor, threshold: float, capacity: int, offset: int = 0
) -> CompactResult:
    """Form acc = grad + residual, send |acc| >= threshold and keep the rest, in one pass of 12 bytes an element.

    ``next_residual``, which shares no memory with the other two, becomes acc, or 0 where an element is sent. At most
    ``capacity`` elements are sent, the first ones; the others that reach the threshold are counted and stay in
    ``next_residual``. ``offset`` is added to the returned indices. NaN never reaches a threshold.
    """
    if isinstance(grad, Tensor):
        result: CompactResult = _backend(grad).fused_select(grad, residual, next_residual, threshold, capacity, offset)
        return result
    found: list[CompactResult] = []
    for start, stop, piece in grad.spans():
        part = fused_select(piece, residual[start:stop], next_residual[start:stop], threshold, capacity, offset + start)
        capacity -= part.indices.numel()
        found.append(part)
    return _joined(found)


def select_in_place(acc: Tensor, threshold: float, capacity: int, offset: int = 0) -> CompactResult:
    """Run `fused_select` on an acc that is formed already; ``acc`` becomes the residual."""
    result: CompactResult = _backend(acc).select_in_place(acc, threshold, capacity, offset)
    return result


def sample(grad: FlatGrad, residual: Tensor, num_samples: int, draw: int = 0) -> Tensor:
    """Sample |grad + residual| at one element of each of ``num_samples`` (at most n) equal strides: float32.

    The place of an element in its stride is hashed from ``draw``: a fixed place would meet the period of a layer's
    rows.
    """
    if isinstance(grad, Tensor):
        result: Tensor = _backend(grad).sample(grad, residual, num_samples, draw)
        return result
    parts: list[Tensor] = []
    for start, stop, piece in grad.spans():
        # The piece's share of what is left, so that the whole adds up.
        share = round((num_samples - sum(part.numel() for part in parts)) * (stop - start) / (grad.numel() - start))
        if share > 0:
            parts.append(sample(piece, residual[start:stop], share, draw))
    return torch.cat(parts)


def accumulate(grad: FlatGrad, residual: Tensor, next_residual: Tensor) -> float:
    """Write ``next_residual`` = grad + residual, and return its squared norm."""
    if isinstance(grad, Tensor):
        result: float = _backend(grad).accumulate(grad, residual, next_residual)
        return result
    return sum(
        accumulate(piece, residual[start:stop], next_residual[start:stop]) for start, stop, piece in grad.spans()
    )


def squared_norm(acc: FlatGrad) -> float:
    """Return the sum of squares of acc; not finite if and only if acc is not."""
    if not isinstance(acc, Tensor):
        return sum(map(squared_norm, acc.pieces))
    return select_in_place(acc, threshold=float("inf"), capacity=0).squared_norm_before


def tail(acc: Tensor, threshold: float) -> Tail:
    """Count and add up what reaches ``threshold``, in one pass that writes nothing: 4 bytes an element."""
    result: Tail = _backend(acc).tail(acc, threshold)
    return result


def take(acc: Tensor, indices: Tensor) -> Tensor:
    """Gather acc at the indices: float32 [m] of int32 [m]."""
    result: Tensor = _backend(acc).take(acc, indices)
    return result


def put(acc: Tensor, indices: Tensor, values: Tensor) -> None:
    """Write the values back at the indices: the inverse of `take` followed by `clear`."""
    _backend(acc).put(acc, indices, values)


def put_back(
    acc: Tensor, indices: Tensor, values: Tensor, k: int, boundary: float, offset: int
) -> tuple[Tensor, Tensor, float]:
    """Put back into acc, at ``indices - offset``, all but the ``k`` values of largest magnitude.

    ``boundary`` is the magnitude of the k-th; among equals the first are kept. Returns indices and values of those
    kept, int32 and float32 [k], and the squared norm of the others.
    """
    result: tuple[Tensor, Tensor, float] = _backend(acc).put_back(acc, indices, values, k, boundary, offset)
    return result


def clear(acc: Tensor, indices: Tensor) -> float:
    """Zero acc at the indices; returns the squared norm that this removed."""
    result: float = _backend(acc).clear(acc, indices)
    return result


def scatter_mean(out: Tensor, parts: Sequence[tuple[Tensor, Tensor]], scale: float) -> None:
    """Write ``out`` = scale times the sum of the sparse ``parts`` (indices int32 [m], values float32 [m]).

    The parts are added in the order given, so ranks that hold the same parts get the same bits.
    """
    _backend(out).scatter_mean(out, parts, scale)


def round_to_bfloat16(values: Tensor, errors: Tensor) -> Tensor:
    """Round the values to bfloat16 in place, and add what that takes to ``errors``; returns them as bfloat16 [n]."""
    result: Tensor = _backend(values).round_to_bfloat16(values, errors)
    return result


def add_bfloat16(target: Tensor, rounded: Tensor) -> None:
    """Add bfloat16 [n] to ``target``, in float32."""
    _backend(target).add_bfloat16(target, rounded)


def write_blocks(values: Tensor, bits: int) -> Tensor:
    """Code the values in 8, 4 or 2 bits (`trimtab.wire.value_formats`), as uint8 [`block_layout.num_bytes`]."""
    message: Tensor = _backend(values).write_blocks(values, bits)
    return message


def read_blocks(message: Tensor, bits: int, target: Tensor) -> None:
    """Write what `write_blocks` made of as many values to ``target``; a message may begin at any address."""
    _backend(target).read_blocks(message, bits, target)


def _joined(parts: Sequence[CompactResult]) -> CompactResult:
    """Join the results of consecutive ranges, as one pass over all would have returned them."""
    return CompactResult(
        torch.cat([part.indices for part in parts]),
        torch.cat([part.values for part in parts]),
        sum(part.num_over for part in parts),
        sum(part.squared_norm_before for part in parts),
        sum(part.squared_norm_after for part in parts),
    )


def _backend(tensor: Tensor) -> ModuleType:
    """Return the compiled form for the tensor's device, imported late: numba and Triton take their time."""
    if tensor.device.type == "cpu":
        from trimtab.kernels import cpu

        return cpu
    if tensor.device.type == "cuda":
        from trimtab.kernels import gpu

        return gpu
    from trimtab.kernels import reference

    return reference
