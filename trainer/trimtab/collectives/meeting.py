"""Where the ranks of a job find each other before they can talk: each says that it is here and waits for the others.

Left to torch, a rank that waits for one that never comes waits half an hour and then says neither for whom nor where.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from trimtab.collectives.transport import CommunicationError

#: Seconds: a store that came at the last moment is still asked who is there.
_LEAST_WAIT = 0.1


def meet(host: str, port: int, rank: int, num_ranks: int, timeout: float) -> Any:
    """The store (`torch.distributed.TCPStore`) that rank 0 keeps at ``host:port``, once every rank has come to it.

    Raises `CommunicationError` that names a rank that has not come within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    keys = [f"trimtab/here/{each}" for each in range(num_ranks)]
    patience = timedelta(seconds=timeout)
    try:
        store = dist.TCPStore(  # type: ignore[attr-defined]  # exported without saying so
            host, port, num_ranks, is_master=rank == 0, timeout=patience, wait_for_workers=False, multi_tenant=True
        )
        store.set(keys[rank], "")
    except dist.DistError as error:
        raise CommunicationError(0, f"did not let the ranks meet at {host}:{port}: {error}") from error
    try:
        store.wait(keys, timedelta(seconds=max(deadline - time.monotonic(), _LEAST_WAIT)))
    except dist.DistError as error:
        raise _missing(store, keys, f"{host}:{port}", timeout) from error
    return store


def _missing(store: Any, keys: list[str], where: str, timeout: float) -> CommunicationError:
    try:
        missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
    except dist.DistError:
        return CommunicationError(0, f"has left {where} before all ranks met there; that rank's log says why")
    others = f", nor did ranks {', '.join(map(str, missing[1:]))}" if len(missing) > 1 else ""
    return CommunicationError(
        missing[0] if missing else 0,
        f"did not come to {where} within {timeout:g} s{others}; a rank comes with trimtab.attach: its log says why",
    )
