"""Extra links between the ranks of a job: over another interface of each host, or over the first once more."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import torch
from trimtab_api.errors import UserError

from trimtab.process.messages import for_rank
from trimtab.transport.base import malformed
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, barrier, broadcast_json, gather_json, json_of
from trimtab.transport.primitives import ring_all_reduce
from trimtab.transport.rendezvous.mesh import Listener, connect
from trimtab.transport.rendezvous.tcp import Endpoint, checked_attempt

FIELD = "spec.network.secondInterface"
#: Size of the exchanges that compare links [float32 elements], and their number; the first fills TCP's windows.
_NUM_ELEMENTS, _NUM_EXCHANGES = 1 << 18, 3


@dataclass(frozen=True)
class _Told:
    """A rank's listener, as it tells the others."""

    endpoint: Endpoint | None
    mistake: str | None
    """Why it has no listener."""
    attempt: str


_LISTENER: Read[_Told] = json_of(_Told)
_NUMBERS: Read[list[float]] = json_of(list[float])


class _NoListenerError(Exception):
    """A rank cannot be called over an interface."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(rank, reason)
        self.rank, self.reason = rank, reason


def join(group: Group, interface: str | None, secret: bytes, deadline: float) -> tuple[float, ...]:
    """Connect the ranks of ``group`` over ``interface`` too, if there is one; every rank calls it together.

    A plan may ask for further links over the first interface later (`Group.join_links`).

    Args:
        group: The ranks.
        interface: Name of the second interface; None without one.
        secret: By which ranks authenticate each other.
        deadline: Seconds.

    Returns:
        The slowness of each interface (`ModelFacts.link_slowness`), the same on all ranks.

    Raises:
        UserError: A rank has no such interface; raised on every rank.
        CommunicationError: A rank cannot be reached.
    """
    is_on_cpu = group.transport.device.type == "cpu"
    if is_on_cpu and group.size > 1:
        group.offer_extra_links(partial(_connected_again, group, secret, deadline))
    if interface is None:
        return (1.0,)
    if not is_on_cpu:
        raise UserError("joins ranks whose model is on the CPU; leave it out", field=FIELD, value=interface)
    try:
        group.add_extra_links(_connected(group, interface, secret, deadline))
    except _NoListenerError as error:
        remedy = f"rank {error.rank} has none ({error.reason}); name one that every worker has, or leave it out"
        raise UserError(remedy, field=FIELD, value=interface) from error
    slowness = _slowness(group)
    for_rank(group.rank).info(
        f"two links: over {interface} an exchange takes {slowness[1]:.3g} times as long as over the first"
    )
    return slowness


def _connected_again(group: Group, secret: bytes, deadline: float) -> Group | None:
    """Connect the ranks once more over the interface that they have; report it and return None if one cannot."""
    try:
        return _connected(group, "", secret, deadline)
    except _NoListenerError as error:
        group.offer_extra_links(None)
        for_rank(group.rank).info(
            f"rank {error.rank} cannot open further connections ({error.reason}); buffers use the"
            " connections that exist"
        )
        return None


def _connected(group: Group, interface: str, secret: bytes, deadline: float) -> Group:
    """Connect the ranks once more over ``interface``; if empty, over the one that they have.

    Raises:
        _NoListenerError: A rank cannot listen there; raised on every rank.
        CommunicationError: A rank cannot be reached.
    """
    listener, mistake = None, None
    try:
        listener = Listener.open(group.size, interface)
    except OSError as error:
        mistake = error.strerror
    mine = {"endpoint": listener and listener.endpoint, "mistake": mistake, "attempt": os.urandom(16).hex()}
    told = gather_json(group, mine, _LISTENER)
    for rank, entry in enumerate(told):
        if entry.endpoint is None:
            if listener is not None:
                listener.listener.close()
            raise _NoListenerError(rank, entry.mistake or "it does not say why")
    assert listener is not None, "or its mistake was raised"
    attempt = checked_attempt(told[0].attempt)
    endpoints = [entry.endpoint for entry in told if entry.endpoint is not None]
    return Group(connect(group.rank, endpoints, listener, secret or attempt, attempt, deadline))


def _slowness(group: Group) -> tuple[float, ...]:
    """Return the slowness of each link, as rank 0 measured it."""
    seconds = [_exchange_seconds(group, link) for link in (group, *group.extra_links)]
    measured = broadcast_json(group, [ratio / seconds[0] for ratio in seconds], _NUMBERS)
    if len(measured) != len(seconds) or not all(0 < ratio < float("inf") for ratio in measured):
        raise malformed(0, f"no measurement of {len(seconds)} links")
    return tuple(measured)


def _exchange_seconds(group: Group, link: Group) -> float:
    """Return the shortest of some exchanges over ``link``, which all ranks begin together."""
    shortest = float("inf")
    for _ in range(1 + _NUM_EXCHANGES):
        values = torch.zeros(_NUM_ELEMENTS, dtype=torch.float32)
        barrier(group)
        began = perf_counter()
        link.submit(lambda values=values: ring_all_reduce(link.transport, [values])).result()  # type: ignore[misc]
        shortest = min(shortest, perf_counter() - began)
    return shortest
