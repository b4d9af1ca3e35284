"""The model's float buffers (a batch norm's running statistics), made the mean over ranks where a round ends."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trimtab.broadcast import gather_tensor
from trimtab.collectives.group import Group


@torch.no_grad()
def average_buffers(model: nn.Module, group: Group) -> None:
    """Make the model's float buffers the mean over ranks, the same bits on each.

    One that holds a number that is not finite, on some ranks, is the mean over the others; on all, it stays as it is.
    What is alike on all ranks keeps its bits: the sum of so few float32 numbers is exact in float64.
    """
    buffers = [each for each in model.buffers() if each.is_floating_point() and each.numel() > 0]
    if not buffers:
        return
    everyones = gather_tensor(group, torch.cat([each.float().view(-1) for each in buffers]))
    sizes = [each.numel() for each in buffers]
    mean = _mean_of_finite(torch.stack(everyones).double(), sizes, group.rank)
    for each, part in zip(buffers, mean.split(sizes), strict=True):
        each.copy_(part.view_as(each))


def _mean_of_finite(values: Tensor, sizes: list[int], rank: int) -> Tensor:
    """float64 [n] of the ranks' ``values``, float64 [N, n], in which buffers of such ``sizes`` follow each other."""
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(values.device)
    spoiled = torch.zeros(len(values), len(sizes), dtype=values.dtype, device=values.device)
    spoiled.index_add_(1, owner, (~torch.isfinite(values)).to(values.dtype))
    is_finite = (spoiled == 0)[:, owner]
    num_finite = is_finite.sum(dim=0)
    mean = torch.where(is_finite, values, 0.0).sum(dim=0) / num_finite
    return torch.where(num_finite > 0, mean, values[rank])
