"""Collectives: how N gradients become one mean. One file per scheme, over the primitives of `trimtab.transport`.

`create` makes a scheme by name, `names` lists them. The catalogue describes them.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab_api import catalogue
from trimtab_api.errors import UserError

if TYPE_CHECKING:
    from trimtab.collectives.base import Collective, Exchange, Exchanged, Handle, Prepared
    from trimtab.transport.base import CommunicationError
    from trimtab.transport.group import Group

__all__ = [
    "Collective",
    "CommunicationError",
    "Exchange",
    "Exchanged",
    "Group",
    "Handle",
    "Prepared",
    "create",
    "names",
]

_HOMES = {"CommunicationError": "trimtab.transport.base", "Group": "trimtab.transport.group"}


def names() -> tuple[str, ...]:
    """Return the names of all collectives."""
    return catalogue.collectives.names()


def create(spec: str, group: Group) -> Collective:
    """Create the collective that ``spec`` names.

    Args:
        spec: Name and options, as in a job file: ``spardl:teams=2``.
        group: The ranks that exchange.

    Raises:
        UserError: The collective or an option is unknown, or it does not run on so many ranks or on their hosts.
    """
    normalized = catalogue.collectives.normalize(spec)
    is_within_hosts = catalogue.per_host(normalized) > 1
    reason = catalogue.rank_count_error(
        normalized, group.size, [len(host) for host in group.hosts] if is_within_hosts else None
    )
    if reason is not None:
        raise UserError(reason, field="collective", value=spec)
    if is_within_hosts:
        from trimtab.collectives.hierarchical import Hierarchy

        between = catalogue.between_hosts(normalized)
        return Hierarchy(group, partial(create, between), is_dense=catalogue.collectives[between].is_dense)
    made: Collective = catalogue.collectives.create(spec, group)
    return made


def __getattr__(name: str) -> Any:
    """Import a name of the interface on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "trimtab.collectives.base")), name)
