"""Tensors as one file of safetensors, written in the background without a stop of training.

`safetensors.torch.save` copies twice and holds Python's lock meanwhile: training stands still for a third of a second
for each file of 128 MiB. The one copy here lets other threads run.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import torch
from torch import Tensor

#: The format's names of types.
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
}
#: Bytes to a multiple of which the header is filled up with spaces.
_ALIGNMENT = 8


def packed(tensors: Mapping[str, Tensor]) -> memoryview:
    """Return contiguous tensors of the CPU as `safetensors` reads them, those of larger elements first.

    Raises:
        TypeError: The format knows no such type; the message names it.
    """
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    header, end = dict[str, object](), 0
    for name, tensor in ordered:
        if tensor.dtype not in _NAMES:
            raise TypeError(f"a tensor of {tensor.dtype} cannot be kept in a checkpoint; keep it as another type")
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    out = torch.empty(8 + len(text) + end, dtype=torch.uint8)
    place = 8 + len(text)
    view: memoryview = out.numpy().data
    view[:place] = struct.pack("<Q", len(text)) + text
    for _, tensor in ordered:
        if tensor.numel():
            out[place : place + tensor.nbytes].copy_(tensor.reshape(-1).view(torch.uint8))
            place += tensor.nbytes
    return view.toreadonly()
