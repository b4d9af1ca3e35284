"""The model's float buffers (a batch norm's running statistics), made the mean over ranks where a round ends.

A buffer may be a cache instead, as long as the longest batch that its rank has seen. Whether ranks' buffers are of one
kind nobody knows beforehand, so each message says what it holds, and no further one is needed. It takes along what else
ranks agree on there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

from trimtab.transport.group import Group
from trimtab.transport.object_collectives import gather_tensor


@torch.no_grad()
def average_buffers(model: nn.Module, group: Group, beside: Sequence[float] = ()) -> list[tuple[float, ...]]:
    """Make the model's float buffers the mean over ranks, the same bits on each.

    Those that are no part of its state (``persistent=False``), or have not one shape and type on all ranks, stay each
    rank's own. One that holds a number that is not finite, on some ranks, is the mean over the others; on all, it stays
    as it is. What is alike on all ranks keeps its bits.

    Args:
        model: The model.
        group: The ranks; all call it together.
        beside: Numbers to send along, as many on all ranks.

    Returns:
        The numbers of each rank, in rank order. Without numbers and float buffers it is empty, and nothing is sent.
    """
    own = _by_kind(model)
    if not own and not beside:
        return []
    everyones = [_read(each) for each in gather_tensor(group, _message(own, beside, group.transport.device))]
    kinds = [kind for kind in own if all(kind in each for _, each in everyones)]
    if kinds:
        buffers = [own[kind] for kind in kinds]
        sizes = [each.numel() for each in buffers]
        values = torch.stack([_values([each[kind] for kind in kinds], buffers) for _, each in everyones])
        for each, part in zip(buffers, _mean_of_finite(values, sizes, group.rank).split(sizes), strict=True):
            each.copy_(part.view_as(each))
    return [numbers for numbers, _ in everyones]


def _by_kind(model: nn.Module) -> dict[int, Tensor]:
    """Return the float buffers by a digest (64 bits) of name, shape and type; all of one type follow each other."""
    found = [(str(each.dtype), name, each) for name, each in persistent_buffers(model) if each.is_floating_point()]
    in_order = sorted(found, key=lambda named: named[:2])
    return {_digest(f"{name} {list(each.shape)} {dtype}"): each for dtype, name, each in in_order}


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _message(own: dict[int, Tensor], beside: Sequence[float], device: torch.device) -> Tensor:
    """Return a message, uint8 [m]: how many numbers and buffers, int64; the numbers, float64; then the buffers.

    Of these their kinds first, and their sizes in bytes, int64 each; then what they hold.
    """
    held = [each.detach().contiguous().view(-1).view(torch.uint8) for each in own.values()]
    numbers = torch.tensor(list(beside), dtype=torch.float64).view(torch.int64)
    counts = [len(beside), len(own), *numbers.tolist(), *own, *(each.numel() for each in held)]
    head = torch.tensor(counts, dtype=torch.int64)
    return torch.cat([each.to(device) for each in (head.view(torch.uint8), *held)])


def _read(message: Tensor) -> tuple[tuple[float, ...], dict[int, Tensor]]:
    """Read what a rank's `_message` holds: its numbers, and by kind its buffers, uint8 each."""
    num_beside, num_buffers = message[:16].clone().view(torch.int64).tolist()
    start = 8 * (2 + num_beside + 2 * num_buffers)
    head = message[16:start].clone().view(torch.int64)
    beside, kinds, sizes = head.split([num_beside, num_buffers, num_buffers])
    parts = message[start:].split(sizes.tolist()) if num_buffers else ()
    return tuple(beside.clone().view(torch.float64).tolist()), dict(zip(kinds.tolist(), parts, strict=True))


def _values(parts: Sequence[Tensor], buffers: Sequence[Tensor]) -> Tensor:
    """Return what a rank's ``parts`` hold, float64 [n]; they are of ``buffers``, in the same order."""
    runs = groupby(zip(parts, buffers, strict=True), key=lambda pair: pair[1].dtype)
    return torch.cat([torch.cat([part for part, _ in run]).view(dtype).double() for dtype, run in runs])


def _mean_of_finite(values: Tensor, sizes: list[int], rank: int) -> Tensor:
    """Return the mean of each buffer over the ranks on which it is finite.

    Args:
        values: The ranks' values, float64 [N, n], in which the buffers follow each other.
        sizes: Elements of each buffer.
        rank: This rank, whose values stay where no rank's are finite or all ranks' are alike.

    Returns:
        float64 [n].
    """
    owner = torch.repeat_interleave(torch.tensor(sizes, dtype=torch.int64)).to(values.device)
    spoiled = torch.zeros(len(values), len(sizes), dtype=values.dtype, device=values.device)
    spoiled.index_add_(1, owner, (~torch.isfinite(values)).to(values.dtype))
    is_finite = (spoiled == 0)[:, owner]
    num_finite = is_finite.sum(dim=0)
    mean = torch.where(is_finite, values, 0.0).sum(dim=0) / num_finite
    is_own = (num_finite == 0) | (values == values[0]).all(dim=0)  # a mean of what is alike might round
    return torch.where(is_own, values[rank], mean)


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
