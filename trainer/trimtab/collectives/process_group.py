"""Point-to-point over a torch.distributed process group: how gradients cross between GPUs (NCCL).

NCCL has neither eager sends nor messages of unknown size, so sends wait for the next receive or flush and leave with it
in one batch (two ranks that send to each other at once would wait for each other for ever), and a message whose size
the receiver does not know follows, one batch later, another that tells it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trimtab.collectives.connect import own_address
from trimtab.collectives.rendezvous import Card, meet
from trimtab.collectives.transport import CommunicationError, Transport, num_bytes


def form(
    backend: str,
    host: str,
    port: int,
    rank: int,
    num_ranks: int,
    timeout: float,
    *,
    secret: bytes,
    say: Callable[[list[int]], None] = lambda missing: None,
) -> None:
    """Make torch's process group of the ranks that meet at rank 0's ``host:port``.

    torch's store knows no secret: whoever reaches its port may read and write. So it opens only when all ranks have
    met, at a port that they alone were told, on the one address that they use, and not on all that rank 0 has.
    """
    own, family = own_address()
    with contextlib.ExitStack() as stack:
        card: Card = {"host": own}
        if rank == 0:
            listener = stack.enter_context(socket.create_server((own, 0), family=family, backlog=num_ranks + 128))
            card["port"] = listener.getsockname()[1]
        met = meet(host, port, rank, num_ranks, timeout, secret=secret, card=card, say=say)
        patience = timedelta(seconds=timeout)
        try:
            store = dist.TCPStore(  # type: ignore[attr-defined]  # exported without saying so
                met.cards[0]["host"],
                met.cards[0]["port"],
                num_ranks,
                is_master=rank == 0,
                timeout=patience,
                wait_for_workers=False,
                master_listen_fd=listener.detach() if rank == 0 else None,
            )
        except dist.DistError as error:
            raise CommunicationError(0, f"did not let the ranks form a process group: {error}") from error
    dist.init_process_group(backend, store=store, rank=rank, world_size=num_ranks, timeout=patience)


class ProcessGroupTransport(Transport):
    """The ranks of ``process_group`` (None: all); no wait passes ``deadline`` seconds."""

    chunk_bytes = 1 << 62  # batches are the pipeline here: one message each

    def __init__(self, process_group: dist.ProcessGroup | None, deadline: float) -> None:
        super().__init__(dist.get_rank(process_group), dist.get_world_size(process_group))
        self.deadline = deadline
        self._process_group = process_group
        cuda = "nccl" in dist.get_backend(process_group)
        self.device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
        self._next_batch: list[dist.P2POp] = []
        self._batch_after: list[dist.P2POp] = []

    def _send(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        self._queue(self._next_batch, dist.isend, _joined(parts), peer)

    def _send_bytes(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        message = _joined(parts)
        length = torch.tensor([message.numel()], dtype=torch.int64, device=self.device)
        self._queue(self._next_batch, dist.isend, length, peer)
        self._queue(self._batch_after, dist.isend, message, peer)

    def receive(self, peer: int, *parts: Tensor) -> None:
        message = torch.empty(num_bytes(parts), dtype=torch.uint8, device=self.device)
        self._queue(self._next_batch, dist.irecv, message, peer)
        self._exchange_batch(peer)
        for part, data in zip(parts, message.split_with_sizes([num_bytes([part]) for part in parts]), strict=True):
            _bytes_of(part).copy_(data)

    def receive_bytes(self, peer: int) -> Tensor:
        length = torch.empty(1, dtype=torch.int64, device=self.device)
        self.receive(peer, length)
        data = torch.empty(int(length.item()), dtype=torch.uint8, device=self.device)
        self.receive(peer, data)
        return data

    def flush(self) -> None:
        while self._next_batch:
            self._exchange_batch(self._next_batch[0].group_peer)

    def abort(self, peer: int, reason: str) -> None:
        """Nothing: the peers find out at their own deadline, which is the backend's too."""

    def close(self) -> None:
        """Nothing: the process group is its owner's."""

    def _queue(self, batch: list[dist.P2POp], operation: Callable[..., Any], message: Tensor, peer: int) -> None:
        if message.numel():  # both sides know of an empty message, and leave it out
            batch.append(dist.P2POp(operation, message, group=self._process_group, group_peer=peer))

    def _exchange_batch(self, peer: int) -> None:
        """Send and receive what is queued, and wait for it; a failure is laid at the door of ``peer``."""
        batch, self._next_batch, self._batch_after = self._next_batch, self._batch_after, []
        if not batch:
            return
        try:
            for work in dist.batch_isend_irecv(batch):
                work.wait(timedelta(seconds=self.deadline))
            if self.device.type == "cuda":
                torch.cuda.current_stream(self.device).synchronize()
        except RuntimeError as error:
            raise CommunicationError(peer, f"no exchange with it: {error}") from error


def _joined(parts: tuple[Tensor, ...]) -> Tensor:
    views = [_bytes_of(part) for part in parts] or [torch.empty(0, dtype=torch.uint8)]
    return views[0] if len(views) == 1 else torch.cat(views)


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.detach().view(-1).view(torch.uint8)
