"""What is packed is what safetensors reads, and training goes on while it is packed."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch
from trimtab.checkpoint.packing import packed

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool]
MORE_TYPES = [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.float8_e5m2]


def test_safetensors_reads_every_type_and_shape_back() -> None:
    tensors = {f"t{i}": torch.arange(6).view(2, 3).to(dtype) for i, dtype in enumerate([*TYPES, *MORE_TYPES])}
    tensors |= {"scalar": torch.tensor(3.5), "empty": torch.empty(0, 4), "odd": torch.ones(5, dtype=torch.bool)}
    read = safetensors.torch.load(bytes(packed(tensors)))
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (read[name].dtype, read[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(read[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_a_type_that_the_format_lacks_is_named() -> None:
    with pytest.raises(TypeError, match=r"a tensor of torch\.complex128 cannot be kept"):
        packed({"t": torch.ones(2, dtype=torch.complex128)})
