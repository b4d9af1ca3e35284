"""Where the ranks of another launcher find each other: torch's store, which torchrun runs and rank 0 elsewhere.

torch's store knows no secret: whoever reaches it can read and change what ranks leave there, as with
DistributedDataParallel. By certificates (`trimtab.environment.job_secret`) ranks know each other all the same.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # exported without saying so
from torch.distributed.rendezvous import rendezvous

from trimtab.collectives.rendezvous import Card, Met, missing_ranks
from trimtab.collectives.transport import CommunicationError

#: Seconds between two looks at who has come.
_LOOK_SECONDS = 0.1
#: Seconds for which ranks may differ in how long they take to start.
_QUIET_SECONDS = 5.0
_PREFIX = "trimtab"
_meetings = itertools.count()


def meet_in_store(
    host: str,
    port: int,
    rank: int,
    num_ranks: int,
    timeout: float,
    *,
    card: Card,
    say: Callable[[list[int]], None] = lambda missing: None,
) -> tuple[Met, Store]:
    """Leave ``card`` (plain JSON) in the store at ``host:port``, and wait for every rank's; each rank calls it.

    The store must be kept until every rank has read it. ``say`` is told on rank 0 which ranks are missing, where they
    are after some seconds, and whenever that changes. Raises
    `CommunicationError` that names a rank that has not come within ``timeout`` seconds.
    """
    until = time.monotonic() + timeout
    try:
        store = _store(host, port, rank, num_ranks, timedelta(seconds=timeout))
    except dist.DistError as error:
        raise CommunicationError(0, f"did not let the ranks meet at {host}:{port}: {_first_line(error)}") from error
    number = next(_meetings)  # a process may attach again, after it has closed its first session
    keys = [f"{_PREFIX}/{number}/{each}" for each in range(num_ranks)]
    try:
        store.set(keys[rank], json.dumps({**card, "attempt": os.urandom(16).hex()}))
        told: list[int] = []
        tell_at = time.monotonic() + _QUIET_SECONDS
        while missing := [each for each in range(num_ranks) if not store.check([keys[each]])]:
            if time.monotonic() > until:
                raise missing_ranks(missing, f"{host}:{port}", timeout)
            if rank == 0 and missing != told and time.monotonic() > tell_at:
                say(missing)
                told = missing
            time.sleep(_LOOK_SECONDS)
        cards = [json.loads(store.get(each)) for each in keys]
    except dist.DistError as error:
        raise CommunicationError(0, f"has left {host}:{port} before all ranks met there") from error
    return Met(cards, bytes.fromhex(cards[0]["attempt"])), store


def _store(host: str, port: int, rank: int, num_ranks: int, timeout: timedelta) -> Store:
    """torchrun's, or else one that rank 0 runs; it does not wait for the other ranks, who are told of one by one."""
    # As `init_process_group` reads them: what torchrun set stays, so that its own store is found.
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = host, str(port)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
        store: Store = next(rendezvous("env://", rank, num_ranks, timeout=timeout))[0]
        return store
    return TCPStore(host, port, num_ranks, rank == 0, timeout, wait_for_workers=False, multi_tenant=True)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
