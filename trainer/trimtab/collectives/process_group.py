"""Point-to-point over a torch.distributed process group: how gradients cross between GPUs (NCCL).

NCCL has neither eager sends nor messages of unknown size, so sends wait for the next receive or flush and leave with it
in one batch (two ranks that send to each other at once would wait for each other for ever), and a message whose size
the receiver does not know follows, one batch later, another that tells it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from trimtab_api.errors import UserError

from trimtab.collectives.connect import own_address
from trimtab.collectives.notices import Notices
from trimtab.collectives.rendezvous import Card, meet
from trimtab.collectives.transport import HAS_LEFT, CommunicationError, Transport, num_bytes


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

    Raises `CommunicationError`, and `UserError` where torch is too old for NCCL's ranks.
    """
    if backend == "nccl":
        check_torch()
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


def check_torch() -> None:
    """Raise `UserError` where this torch lacks what a process group's ranks need to tell each other of failures."""
    if not hasattr(dist.Store, "clone"):  # type: ignore[attr-defined]  # exported without saying so
        raise UserError("ranks on GPUs need 2.8 or later; upgrade it", field="torch", value=torch.__version__)


class ProcessGroupTransport(Transport):
    """The ranks of ``process_group`` (None: all); no wait passes ``deadline`` seconds."""

    chunk_bytes = 1 << 62  # batches are the pipeline here: one message each

    def __init__(self, process_group: dist.ProcessGroup | None, deadline: float) -> None:
        check_torch()
        super().__init__(dist.get_rank(process_group), dist.get_world_size(process_group))
        self.deadline = deadline
        self._process_group = process_group
        cuda = "nccl" in dist.get_backend(process_group)
        self.device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
        self.has_own_all_reduce = cuda  # no run on a GPU has proven it
        self._notices = Notices.of(process_group)
        if cuda:  # NCCL's own communicator would wait for a rank that has failed until its deadline
            self._notices.watch(self._abort_communicator)
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

    def all_reduce(self, pieces: Sequence[Tensor]) -> None:
        for piece in pieces:
            self._count((piece,))
        try:
            self._wait_for([dist.all_reduce(p, group=self._process_group, async_op=True) for p in pieces if p.numel()])
        except RuntimeError as error:
            raise self._cause((self.rank + 1) % self.size, error) from error

    def abort(self, peer: int, reason: str) -> None:
        self._notices.post_failure(peer, reason)
        if self.device.type == "cuda":
            self._abort_communicator()

    def leave(self) -> None:
        self._notices.post_leaving()

    def close(self) -> None:
        """The process group is its owner's."""
        self._notices.close()

    def _queue(self, batch: list[dist.P2POp], operation: Callable[..., Any], message: Tensor, peer: int) -> None:
        if message.numel():  # both sides know of an empty message, and leave it out
            batch.append(dist.P2POp(operation, message, group=self._process_group, group_peer=peer))

    def _exchange_batch(self, peer: int) -> None:
        """Send and receive what is queued, and wait for it; a failure is laid at the door of ``peer``."""
        batch, self._next_batch, self._batch_after = self._next_batch, self._batch_after, []
        if not batch:
            return
        try:
            self._wait_for(dist.batch_isend_irecv(batch))
        except RuntimeError as error:
            raise self._cause(peer, error) from error

    def _wait_for(self, works: Sequence[dist.Work]) -> None:
        for work in works:
            work.wait(timedelta(seconds=self.deadline))
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def _cause(self, peer: int, error: RuntimeError) -> CommunicationError:
        """What another rank has said of it, or else what the backend says of ``peer``."""
        failure = self._notices.failure()
        if failure is not None:
            reporter, at_fault, reason = failure
            return CommunicationError(at_fault, reason, reported_by=None if reporter == at_fault else reporter)
        if self._notices.has_left(peer):
            return CommunicationError(peer, HAS_LEFT)
        return CommunicationError(peer, f"no exchange with it: {error}")

    def _abort_communicator(self) -> None:
        with contextlib.suppress(RuntimeError):
            (self._process_group or dist.distributed_c10d._get_default_group()).abort()


def _joined(parts: tuple[Tensor, ...]) -> Tensor:
    views = [_bytes_of(part) for part in parts] or [torch.empty(0, dtype=torch.uint8)]
    return views[0] if len(views) == 1 else torch.cat(views)


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.detach().view(-1).view(torch.uint8)
