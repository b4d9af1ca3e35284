"""Rendezvous of another launcher's ranks in torch's store, which torchrun runs and rank 0 elsewhere.

torchrun's store outlives a restart of its workers, and so do the keys of the attempt before. No variable tells attempts
apart on every machine: each torchrun agent counts its own restarts. So a rank believes only what names a number that it
has just drawn:

    each other rank    leaves its endpoint and a token
    rank 0             answers with all endpoints, all tokens and a number of its own, the attempt
    each other rank    confirms an answer that has its token, by the attempt
    rank 0             marks the answer as final once all have confirmed; answers anew where an endpoint has changed

A value that no rank leaves is refused, and the rank in whose place it lies is named.

torch's store knows no secret: anybody who reaches it can read and change what ranks leave there, as with
DistributedDataParallel. Ranks get one from rank 0 that no reader learns (`agreed_secret`). By certificates
(`trimtab.launch.environment.job_secret`) ranks know each other all the same.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import torch.distributed as dist
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # exported without saying so
from torch.distributed.rendezvous import rendezvous

from trimtab.transport.base import CommunicationError, malformed
from trimtab.transport.rendezvous.agreed_secret import KeyPair, draw_secret
from trimtab.transport.rendezvous.tcp import Endpoint, RendezvousResult, check_endpoint, checked_attempt, missing_ranks

#: Seconds between two looks at the store.
_LOOK_SECONDS = 0.05
#: Seconds for which ranks may differ in how long they take to start.
_QUIET_SECONDS = 5.0
_PREFIX = "trimtab"
#: Largest size of a value; an answer to thousands of ranks has less.
_MOST_BYTES = 16 << 20
#: Hexadecimal digits of a key, or of a secret that is sealed.
_MOST_DIGITS = 256


def meet_in_store(
    host: str,
    port: int,
    rank: int,
    num_ranks: int,
    timeout: float,
    *,
    endpoint: Endpoint,
    say: Callable[[list[int]], None] = lambda missing: None,
) -> tuple[RendezvousResult, Store]:
    """Leave ``endpoint`` (plain JSON) in the store at ``host:port``, and wait for every rank's; each rank calls it.

    Arguments are those of `meet`. ``say`` is called with the missing ranks after some seconds, and whenever they
    change.

    Returns:
        The outcome, and the store, which must be kept until every rank has read it.

    Raises:
        CommunicationError: Names a rank that has not come within ``timeout`` seconds.
    """
    until = time.monotonic() + timeout
    where = f"{host}:{port}"
    try:
        store = _store(host, port, rank, num_ranks, timedelta(seconds=timeout))
    except dist.DistError as error:
        raise CommunicationError(0, f"did not let the ranks meet at {where}: {_first_line(error)}") from error
    try:
        if rank == 0:
            met = _answer_all(store, num_ranks, endpoint, until, say)
        else:
            met = _ask_first(store, rank, num_ranks, endpoint, until)
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


def _answer_all(
    store: Store, num_ranks: int, endpoint: Endpoint, until: float, say: Callable[[list[int]], None]
) -> RendezvousResult:
    """Run rank 0's side of the rendezvous."""
    ranks = range(num_ranks)
    answered: dict[int, _Left] = {}
    answer: dict[str, Any] = {}
    pair, secret = KeyPair(), draw_secret()
    _write(
        store, _key("endpoint", 0), {"endpoint": endpoint, "token": os.urandom(16).hex(), "public": pair.public.hex()}
    )
    told: list[int] = []
    tell_at = time.monotonic() + _QUIET_SECONDS
    while True:
        here = {peer: _Left.read(value, peer) for peer, value in _read(store, "endpoint", ranks).items()}
        if len(here) == num_ranks and here != answered:
            answered = here
            answer = {
                "endpoints": [here[peer].endpoint for peer in ranks],
                "tokens": [here[peer].token for peer in ranks],
                "public": pair.public.hex(),
                "sealed": [pair.seal(secret, here[peer].public, peer).hex() for peer in ranks],
                "attempt": os.urandom(16).hex(),
                "final": False,
            }
            _write(store, _key("answer", 0), answer)
        missing = [peer for peer in ranks if peer not in here]
        if answered:
            missing = _unconfirmed(store, num_ranks, answer["attempt"])
        if answered and not missing:
            _write(store, _key("answer", 0), {**answer, "final": True})
            return RendezvousResult(answer["endpoints"], bytes.fromhex(answer["attempt"]), secret)
        if time.monotonic() > until:
            raise _MissingError(missing)
        if missing != told and time.monotonic() > tell_at:
            say(missing)
            told = missing
        time.sleep(_LOOK_SECONDS)


def _ask_first(store: Store, rank: int, num_ranks: int, endpoint: Endpoint, until: float) -> RendezvousResult:
    """Run the side of every other rank."""
    pair, token = KeyPair(), os.urandom(16).hex()
    _write(store, _key("endpoint", rank), {"endpoint": endpoint, "token": token, "public": pair.public.hex()})
    attempt = None
    while True:
        answer = _Answer.read(_read(store, "answer", [0]).get(0), rank, num_ranks, token)
        if answer is not None:
            if answer.is_final:
                return RendezvousResult(
                    answer.endpoints, bytes.fromhex(answer.attempt), pair.unseal(answer.sealed, answer.public)
                )
            if answer.attempt != attempt:
                attempt = answer.attempt
                _write(store, _key("confirmed", rank), attempt)
        if time.monotonic() > until:
            absent = [peer for peer in range(num_ranks) if not store.check([_key("endpoint", peer)])]
            raise _MissingError(absent or (_unconfirmed(store, num_ranks, attempt) if attempt else [0]))
        time.sleep(_LOOK_SECONDS)


def _unconfirmed(store: Store, num_ranks: int, attempt: str) -> list[int]:
    """Return the ranks that have not answered rank 0 in this attempt."""
    confirmed = _read(store, "confirmed", range(1, num_ranks))
    for peer, value in confirmed.items():
        checked_attempt(value, peer)
    return [peer for peer in range(1, num_ranks) if confirmed.get(peer) != attempt]


@dataclass(frozen=True)
class _Left:
    """A rank's message to rank 0."""

    endpoint: Endpoint
    token: str
    public: bytes

    @classmethod
    def read(cls, value: Any, rank: int) -> Self:
        """Read the message; raise `CommunicationError` if no ``rank`` leaves that."""
        check_endpoint(value, rank)
        check_endpoint(value.get("endpoint"), rank)
        token = checked_attempt(value.get("token"), rank).hex()
        return cls(value["endpoint"], token, _from_hex(value.get("public"), rank))


@dataclass(frozen=True)
class _Answer:
    """Rank 0's answer to one rank."""

    endpoints: list[Endpoint]
    attempt: str
    sealed: bytes
    public: bytes
    is_final: bool

    @classmethod
    def read(cls, value: Any, rank: int, num_ranks: int, token: str) -> Self | None:
        """Read the answer; None if it is of another attempt; `CommunicationError` if rank 0 leaves no such answer."""
        if value is None:
            return None
        check_endpoint(value, 0)
        tokens, endpoints, sealed = (value.get(name) for name in ("tokens", "endpoints", "sealed"))
        if not isinstance(tokens, list):
            raise malformed(0, "no answer to where the ranks meet")
        if tokens[rank : rank + 1] != [token]:
            return None
        if not all(isinstance(field, list) and len(field) == num_ranks for field in (tokens, endpoints, sealed)):
            raise malformed(0, f"no answer to {num_ranks} ranks to where they meet")
        for endpoint in endpoints:
            check_endpoint(endpoint, 0)
        attempt = checked_attempt(value.get("attempt")).hex()
        return cls(
            endpoints,
            attempt,
            _from_hex(sealed[rank], 0),
            _from_hex(value.get("public"), 0),
            value.get("final") is True,
        )


def _from_hex(digits: Any, sender: int) -> bytes:
    try:
        if isinstance(digits, str) and len(digits) <= _MOST_DIGITS:
            return bytes.fromhex(digits)
    except ValueError:
        pass
    raise malformed(sender, "no hexadecimal digits where a key belongs")


def _read(store: Store, kind: str, ranks: Iterable[int]) -> dict[int, Any]:
    """Return the ranks' messages of this kind, of any attempt; may raise `CommunicationError`."""
    here = [rank for rank in ranks if store.check([_key(kind, rank)])]
    return {rank: _parsed(store.get(_key(kind, rank)), rank) for rank in here}


def _parsed(text: bytes, sender: int) -> Any:
    if len(text) > _MOST_BYTES:
        raise malformed(sender, f"{len(text)} bytes to where the ranks meet, where {_MOST_BYTES} are the most")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise malformed(sender, "no JSON to where the ranks meet") from error


def _write(store: Store, key: str, data: Any) -> None:
    store.set(key, json.dumps(data))


def _key(kind: str, rank: int) -> str:
    return f"{_PREFIX}/{kind}/{rank}"


def _store(host: str, port: int, rank: int, num_ranks: int, timeout: timedelta) -> Store:
    """Return torchrun's store, or else one that rank 0 runs; it does not wait for the other ranks."""
    # As `init_process_group` reads them: what torchrun set stays, so that its own store is found.
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = host, str(port)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
        store: Store = next(rendezvous("env://", rank, num_ranks, timeout=timeout))[0]
        return store
    return TCPStore(host, port, num_ranks, rank == 0, timeout, wait_for_workers=False, multi_tenant=True)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
