"""Point-to-point over a torch.distributed process group: how gradients cross between GPUs (NCCL).

NCCL has neither eager sends nor messages of unknown size, so sends wait for the next receive or flush and leave with it
in one batch (two ranks that send to each other at once would wait for each other for ever), and a message whose size
the receiver does not know is preceded by one that tells it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trimtab.collectives.transport import CommunicationError, Transport


class ProcessGroupTransport(Transport):
    """The ranks of ``process_group`` (None: all); no wait passes ``deadline`` seconds."""

    chunk_bytes = 1 << 62  # batches are the pipeline here: one message each

    def __init__(self, process_group: dist.ProcessGroup | None, deadline: float) -> None:
        super().__init__(dist.get_rank(process_group), dist.get_world_size(process_group))
        self.deadline = deadline
        self._process_group = process_group
        cuda = dist.get_backend(process_group) == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
        self._pending: list[dist.P2POp] = []

    def _send(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        message = torch.cat([_bytes_of(part) for part in parts]) if len(parts) > 1 else _bytes_of(parts[0])
        if message.numel():
            self._pending.append(self._operation(dist.isend, message, peer))

    def _send_bytes(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        length = sum(part.numel() * part.element_size() for part in parts)
        self._send(peer, (torch.tensor([length], dtype=torch.int64, device=self._device),))
        self._send(peer, parts)

    def receive(self, peer: int, *parts: Tensor) -> None:
        length = sum(part.numel() * part.element_size() for part in parts)
        if length == 0:
            return
        message = torch.empty(length, dtype=torch.uint8, device=self._device)
        self._pending.append(self._operation(dist.irecv, message, peer))
        self._leave(peer)
        for part, data in zip(
            parts, message.split_with_sizes([_bytes_of(part).numel() for part in parts]), strict=True
        ):
            _bytes_of(part).copy_(data)

    def receive_bytes(self, peer: int) -> Tensor:
        length = torch.empty(1, dtype=torch.int64, device=self._device)
        self.receive(peer, length)
        data = torch.empty(int(length.item()), dtype=torch.uint8, device=self._device)
        self.receive(peer, data)
        return data

    def flush(self) -> None:
        if self._pending:
            self._leave(self._pending[0].group_peer)

    def abort(self, peer: int, reason: str) -> None:
        """Nothing: the peers find out at their own deadline, which is the backend's too."""

    def close(self) -> None:
        """Nothing: the process group is its owner's."""

    def _operation(self, operation: Callable[..., Any], message: Tensor, peer: int) -> dist.P2POp:
        return dist.P2POp(operation, message, group=self._process_group, group_peer=peer)

    def _leave(self, peer: int) -> None:
        """Send and receive what is pending, and wait for it; a failure is laid at the door of ``peer``."""
        pending, self._pending = self._pending, []
        try:
            for work in dist.batch_isend_irecv(pending):
                work.wait(timedelta(seconds=self.deadline))
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
        except RuntimeError as error:
            raise CommunicationError(peer, f"no exchange with it: {error}") from error


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.detach().view(-1).view(torch.uint8)
