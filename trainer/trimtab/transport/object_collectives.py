"""Rare messages of rank 0 to all ranks, outside the exchange of gradients: weights at the start, plans, trials.

A reader that the caller passes, such as `json_of` a type, reads what comes. A rank that sends anything else is named in
a `CommunicationError`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter
from torch import Tensor
from trimtab_api.errors import UserError

from trimtab.transport.base import malformed
from trimtab.transport.group import Group
from trimtab.transport.primitives import all_gather, broadcast

#: Bytes of tensors that cross in one message; as much is held once more meanwhile.
_BYTES_TOGETHER = 64 << 20

T = TypeVar("T")
Read = Callable[[bytes], T]
"""Turns JSON into a value; raises, such as ValueError or KeyError, for what it does not know."""


def json_of(kind: Any) -> Read[Any]:
    """Return a reader of JSON of this type, and of no other; of a dataclass it makes an instance."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return lambda text: adapter.validate_json(text, strict=True)


#: The error of a rank, if there is one.
TEXT_OR_NONE: Read[str | None] = json_of(str | None)


def broadcast_json(group: Group, data: Any, read: Read[T]) -> T:
    """Return rank 0's ``data`` (plain JSON) on every rank; the others' is ignored.

    Raises:
        CommunicationError: Rank 0 sent what ``read`` does not know.
    """
    if group.size == 1:
        return read(json.dumps(data).encode())
    encoded = None
    if group.rank == 0:
        encoded = torch.frombuffer(bytearray(json.dumps(data).encode()), dtype=torch.uint8).to(group.transport.device)
    received = group.submit(lambda: broadcast(group.transport, encoded, root=0)[0]).result()
    return _understood(received, 0, read)


def _understood(message: Tensor, sender: int, read: Read[T]) -> T:
    try:
        return read(message.cpu().numpy().tobytes())
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, UserError) as error:
        raise malformed(sender, "JSON that does not say what ranks tell each other here") from error


def tell_json(group: Group, data: Any, read: Read[T]) -> Callable[[], T]:
    """Begin to send rank 0's ``data`` (plain JSON) to each rank at once, and return a function that waits for it.

    It is there after one latency, where `broadcast_json` takes several; rank 0 sends a message to each.
    """
    transport = group.transport
    encoded = torch.frombuffer(bytearray(json.dumps(data).encode()), dtype=torch.uint8)

    def tell() -> Tensor:
        if group.rank:
            return transport.receive_bytes(0)
        own = encoded.to(transport.device)
        for peer in range(1, group.size):
            transport.send(peer, own)
        return own

    told = group.submit(tell)
    return lambda: _understood(told.result(), 0, read)


def broadcast_tensor(group: Group, tensor: Tensor) -> None:
    """Overwrite ``tensor`` on every rank with rank 0's."""
    if group.size == 1 or tensor.numel() == 0:
        return
    raw = None
    if group.rank == 0:
        raw = tensor.detach().contiguous().view(-1).view(torch.uint8).to(group.transport.device)
    received = group.submit(lambda: broadcast(group.transport, raw, root=0)[0]).result()
    if group.rank != 0:
        if received.numel() != tensor.nbytes:
            raise malformed(0, f"{received.numel()} bytes of a tensor that has {tensor.nbytes}")
        tensor.detach().copy_(received.clone().view(tensor.dtype).view_as(tensor))


@torch.no_grad()
def broadcast_tensors(group: Group, tensors: Iterable[Tensor]) -> None:
    """Overwrite each of ``tensors`` on every rank with rank 0's; small ones cross together, in up to 64 MiB."""
    packed: list[Tensor] = []
    num_bytes = 0
    for tensor in tensors:
        if packed and num_bytes + tensor.nbytes > _BYTES_TOGETHER:
            _broadcast_packed(group, packed)
            packed, num_bytes = [], 0
        packed.append(tensor)
        num_bytes += tensor.nbytes
    _broadcast_packed(group, packed)


def _broadcast_packed(group: Group, tensors: Sequence[Tensor]) -> None:
    if len(tensors) == 1:
        broadcast_tensor(group, tensors[0])
    if group.size == 1 or len(tensors) < 2:
        return
    raw = [tensor.detach().contiguous().view(-1).view(torch.uint8).to(group.transport.device) for tensor in tensors]
    whole = torch.cat(raw)
    broadcast_tensor(group, whole)
    if group.rank != 0:
        for tensor, part in zip(tensors, whole.split([flat.numel() for flat in raw]), strict=True):
            tensor.copy_(part.clone().view(tensor.dtype).view_as(tensor))


def gather_numbers(group: Group, number: int) -> list[int]:
    """Return every rank's ``number`` (0 .. 255), in rank order, on every rank."""
    message = torch.tensor([number], dtype=torch.uint8, device=group.transport.device)
    return group.submit(lambda: [int(part[0]) for part in all_gather(group.transport, message)[0]]).result()


def gather_json(group: Group, data: Any, read: Read[T]) -> list[T]:
    """Return every rank's ``data`` (plain JSON), in rank order, on every rank.

    Raises:
        CommunicationError: Names a rank that sent what ``read`` does not know.
    """
    encoded = torch.frombuffer(bytearray(json.dumps(data).encode()), dtype=torch.uint8).to(group.transport.device)
    received = group.submit(lambda: all_gather(group.transport, encoded)[0]).result()
    return [_understood(message, rank, read) for rank, message in enumerate(received)]


def gather_tensor(group: Group, tensor: Tensor) -> list[Tensor]:
    """Return every rank's ``tensor`` (one type on all), flat, in rank order, on the transport's device."""
    raw = tensor.detach().contiguous().view(-1).view(torch.uint8).to(group.transport.device)
    received = group.submit(lambda: all_gather(group.transport, raw)[0]).result()
    return [message.clone().view(tensor.dtype) for message in received]


def raise_together(group: Group | None, mistake: UserError | None, failed: str = "", *, field: str = "") -> None:
    """Raise this rank's ``mistake``, or else the first of another rank's; every rank calls it together.

    Another's is reported as "rank 1 ``failed``: ..." of ``field``. Without a group there are no others.
    """
    told = [] if group is None else gather_json(group, None if mistake is None else str(mistake), TEXT_OR_NONE)
    if mistake is not None:
        raise mistake
    for rank, each in enumerate(told):
        if each is not None:
            raise UserError(f"rank {rank}{failed and f' {failed}'}: {each}", field=field)


def barrier(group: Group) -> None:
    """Wait until every rank has called this."""
    gather_numbers(group, 0)
