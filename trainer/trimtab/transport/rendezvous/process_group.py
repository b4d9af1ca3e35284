"""Forms torch's process group, which sums over ranks on GPUs (NCCL), and by which DDP exchanges."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trimtab.transport.base import CommunicationError
from trimtab.transport.interfaces import own_address
from trimtab.transport.rendezvous.tcp import Endpoint, address_in, meet


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

    torch's store knows no secret: anybody who reaches its port may read and write. So it opens only when all ranks have
    met, at a port that they alone were told, on the one address that they use, and not on all that rank 0 has.

    Raises:
        CommunicationError: A rank is missing, or the store cannot be reached.
    """
    own, family = own_address()
    with contextlib.ExitStack() as stack:
        endpoint: Endpoint = {"host": own}
        if rank == 0:
            listener = stack.enter_context(socket.create_server((own, 0), family=family, backlog=num_ranks + 128))
            endpoint["port"] = listener.getsockname()[1]
        met = meet(host, port, rank, num_ranks, timeout, secret=secret, endpoint=endpoint, say=say)
        address, number = address_in(met.endpoints, 0)
        try:
            store = dist.TCPStore(  # type: ignore[attr-defined]  # exported without saying so
                address,
                number,
                num_ranks,
                is_master=rank == 0,
                timeout=timedelta(seconds=timeout),
                wait_for_workers=False,
                master_listen_fd=listener.detach() if rank == 0 else None,
            )
        except dist.DistError as error:
            raise CommunicationError(0, f"did not let the ranks form a process group: {error}") from error
    initialize(backend, rank, num_ranks, timeout, store=store)


def initialize(backend: str, rank: int, num_ranks: int, timeout: float, **where: Any) -> None:
    """Make torch's process group of the ranks that meet at its ``store`` or ``init_method``; else at MASTER_ADDR.

    NCCL's is of this process's current GPU, and reports errors, where by default it would end the process.
    """
    device = None
    if backend == "nccl":
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
        device = torch.device("cuda", torch.cuda.current_device())
    patience = timedelta(seconds=timeout)
    dist.init_process_group(backend, rank=rank, world_size=num_ranks, timeout=patience, device_id=device, **where)
