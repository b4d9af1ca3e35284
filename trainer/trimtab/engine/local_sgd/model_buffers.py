"""The buffers of a model: those that are part of its state, and how one is put back."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


def persistent_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers that are part of the model's state, each once, by name."""
    seen = set[int]()
    for prefix, module in model.named_modules():
        for name, each in module.named_buffers(prefix, recurse=False):
            if name.rpartition(".")[2] not in module._non_persistent_buffers_set and id(each) not in seen:
                seen.add(id(each))
                yield name, each


@torch.no_grad()
def put_back(module: nn.Module, name: str, kept: Tensor) -> None:
    """Make the module's own buffer what was kept of it, in place but for a cache that has had another size since."""
    buffer = getattr(module, name)
    if buffer.shape == kept.shape:
        buffer.copy_(kept)
    else:
        setattr(module, name, kept.to(buffer.device, copy=True))
