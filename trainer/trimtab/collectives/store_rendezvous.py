"""Where the ranks of another launcher find each other: torch's store, which torchrun runs and rank 0 elsewhere.

torchrun's store outlives a restart of its workers, and so do the keys of the attempt before. No variable tells attempts
apart on every machine: each torchrun agent counts its own restarts. So a rank believes only what names a number that it
has just drawn:

    each other rank    leaves its card and a token
    rank 0             answers with all cards, all tokens and a number of its own, the attempt
    each other rank    confirms an answer that has its token, by the attempt
    rank 0             marks the answer as final once all have confirmed; answers anew where a card has changed

torch's store knows no secret: whoever reaches it can read and change what ranks leave there, as with
DistributedDataParallel. Ranks get one from rank 0 that no reader learns (`agreed_secret`). By certificates
(`trimtab.environment.job_secret`) ranks know each other all the same.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # exported without saying so
from torch.distributed.rendezvous import rendezvous

from trimtab.collectives.agreed_secret import KeyPair, draw_secret
from trimtab.collectives.rendezvous import Card, Met, missing_ranks
from trimtab.collectives.transport import CommunicationError

#: Seconds between two looks at the store.
_LOOK_SECONDS = 0.05
#: Seconds for which ranks may differ in how long they take to start.
_QUIET_SECONDS = 5.0
_PREFIX = "trimtab"


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
    are after some seconds, and whenever that changes. Raises `CommunicationError` that names a rank that has not come
    within ``timeout`` seconds.
    """
    until = time.monotonic() + timeout
    where = f"{host}:{port}"
    try:
        store = _store(host, port, rank, num_ranks, timedelta(seconds=timeout))
    except dist.DistError as error:
        raise CommunicationError(0, f"did not let the ranks meet at {where}: {_first_line(error)}") from error
    try:
        if rank == 0:
            met = _answer_all(store, num_ranks, card, until, say)
        else:
            met = _ask_first(store, rank, num_ranks, card, until)
    except _MissingError as error:
        raise missing_ranks(error.ranks, where, timeout) from None
    except dist.DistError as error:
        raise CommunicationError(0, f"has left {where} before all ranks met there") from error
    return met, store


class _MissingError(Exception):
    """Ranks that have not come in time."""

    def __init__(self, ranks: list[int]) -> None:
        super().__init__(ranks)
        self.ranks = ranks


def _answer_all(store: Store, num_ranks: int, card: Card, until: float, say: Callable[[list[int]], None]) -> Met:
    """Rank 0's part."""
    ranks = range(num_ranks)
    answered: dict[int, Any] = {}
    answer: dict[str, Any] = {}
    pair, secret = KeyPair(), draw_secret()
    _write(store, _key("card", 0), {"card": card, "token": os.urandom(16).hex(), "public": pair.public.hex()})
    told: list[int] = []
    tell_at = time.monotonic() + _QUIET_SECONDS
    while True:
        here = _read(store, "card", ranks)
        if len(here) == num_ranks and here != answered:
            answered = here
            cards, tokens = ([here[each][name] for each in ranks] for name in ("card", "token"))
            publics = [bytes.fromhex(here[each]["public"]) for each in ranks]
            answer = {
                "cards": cards,
                "tokens": tokens,
                "public": pair.public.hex(),
                "sealed": [pair.seal(secret, public).hex() for public in publics],
                "attempt": os.urandom(16).hex(),
                "final": False,
            }
            _write(store, _key("answer", 0), answer)
        missing = [each for each in ranks if each not in here]
        if answered:
            missing = _unconfirmed(store, num_ranks, answer["attempt"])
        if answered and not missing:
            _write(store, _key("answer", 0), {**answer, "final": True})
            return Met(answer["cards"], bytes.fromhex(answer["attempt"]), secret)
        if time.monotonic() > until:
            raise _MissingError(missing)
        if missing != told and time.monotonic() > tell_at:
            say(missing)
            told = missing
        time.sleep(_LOOK_SECONDS)


def _ask_first(store: Store, rank: int, num_ranks: int, card: Card, until: float) -> Met:
    """Every other rank's part."""
    pair, token = KeyPair(), os.urandom(16).hex()
    _write(store, _key("card", rank), {"card": card, "token": token, "public": pair.public.hex()})
    attempt = None
    while True:
        answer = _read(store, "answer", [0]).get(0)
        if answer is not None and answer["tokens"][rank : rank + 1] == [token]:  # else it is of another attempt
            if answer["final"]:
                sealed, public = bytes.fromhex(answer["sealed"][rank]), bytes.fromhex(answer["public"])
                return Met(answer["cards"], bytes.fromhex(answer["attempt"]), pair.unseal(sealed, public))
            if answer["attempt"] != attempt:
                attempt = answer["attempt"]
                _write(store, _key("confirmed", rank), attempt)
        if time.monotonic() > until:
            here = _read(store, "card", range(num_ranks))
            absent = [each for each in range(num_ranks) if each not in here]
            raise _MissingError(absent or (_unconfirmed(store, num_ranks, attempt) if attempt else [0]))
        time.sleep(_LOOK_SECONDS)


def _unconfirmed(store: Store, num_ranks: int, attempt: str) -> list[int]:
    """The ranks that have not answered rank 0 in this attempt."""
    confirmed = _read(store, "confirmed", range(1, num_ranks))
    return [each for each in range(1, num_ranks) if confirmed.get(each) != attempt]


def _read(store: Store, kind: str, ranks: Iterable[int]) -> dict[int, Any]:
    """What ranks have left of this kind, in this attempt or an earlier one."""
    here = [each for each in ranks if store.check([_key(kind, each)])]
    return {each: json.loads(store.get(_key(kind, each))) for each in here}


def _write(store: Store, key: str, data: Any) -> None:
    store.set(key, json.dumps(data))


def _key(kind: str, rank: int) -> str:
    return f"{_PREFIX}/{kind}/{rank}"


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
