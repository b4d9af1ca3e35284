"""The places of a job's checkpoints, once every rank has shown that it can write to the one that lasts."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable

from trimtab_api.errors import UserError

from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.checkpoint.store import FIELD, Store
from trimtab.checkpoint.store_probe import FOLDER, find_probe, write_probe
from trimtab.session.checkpoints.tiers import Tier, open_tiers
from trimtab.session.rank_ops import RankOps
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import Read, broadcast_json, gather_numbers, json_of, raise_together

_TEXT: Read[str] = json_of(str)


def open_proven(settings: CheckpointSettings, group: Group | None, ranks: RankOps) -> list[Tier]:
    """Return the places of a job's checkpoints; every rank calls it together, before anything of training changes.

    Raises:
        UserError: A rank cannot write there, or the ranks do not see one place; raised on every rank.
    """
    token = secrets.token_hex(4)
    if group is not None:
        token = broadcast_json(group, token, _TEXT)
    mistake, tiers, has_written = None, list[Tier](), False
    try:
        tiers = open_tiers(settings, lambda text: ranks.warn(text, on_each=True))
        if settings.where is not None:
            problem, warning = write_probe(tiers[-1].store, _name(ranks.rank, token))
            if warning:
                ranks.warn(f"{FIELD}: {settings.where} {warning}", on_each=True)
            mistake = tiers[-1].mistake(problem) if problem else None
            has_written = not (problem or warning)
    except UserError as error:
        mistake = error
    raise_together(group, mistake, field=FIELD)
    if settings.where is None:
        return tiers
    store = tiers[-1].store
    if group is not None and group.size > 1:
        have_written = gather_numbers(group, int(has_written))
        firsts = [host[0] for host in group.hosts if have_written[host[0]] and host[0] != 0]
        unseen = _first_unseen(store, firsts, token) if group.rank == 0 else None
        problem = (
            f"is not one place: rank 0 does not find what rank {unseen} wrote there; name a directory that all workers"
            " share, or a URL"
        )
        mistake = None if unseen is None else UserError(problem, field=FIELD, value=settings.where)
        raise_together(group, mistake, field=FIELD)
    if ranks.is_main:
        with contextlib.suppress(OSError):  # a few bytes stay, which the next start removes
            store.remove(FOLDER)
    return tiers


def _name(rank: int, token: str) -> str:
    return f"rank-{rank}-{token}"


def _first_unseen(store: Store, ranks: Iterable[int], token: str) -> int | None:
    """Return the first of ``ranks`` whose file is not found here."""
    return next((rank for rank in ranks if not find_probe(store, _name(rank, token))), None)
