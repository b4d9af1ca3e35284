"""How N gradients become one mean: one file per scheme, over the primitives in `primitives`.

`create` makes a scheme by name, `names` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab_api.errors import UserError

from trimtab.collectives import artopk
from trimtab.collectives.all_gather import AllGather
from trimtab.collectives.base import Collective, Exchange, Exchanged, Handle
from trimtab.collectives.dense import dense_ring, dense_tree
from trimtab.collectives.group import Group
from trimtab.collectives.transport import CommunicationError

__all__ = ["Collective", "CommunicationError", "Exchange", "Exchanged", "Group", "Handle", "create", "names"]

_SCHEMES: dict[str, Callable[..., Collective]] = {
    "dense-ring": dense_ring,
    "dense-tree": dense_tree,
    "all-gather": AllGather,
    **artopk.VARIANTS,
}


def names() -> tuple[str, ...]:
    """Every scheme's name."""
    return tuple(_SCHEMES)


def create(name: str, group: Group, **options: Any) -> Collective:
    """The scheme ``name`` on the ranks of ``group``; ``options`` are that scheme's own.

    Raises `UserError` for an unknown name.
    """
    if name not in _SCHEMES:
        raise UserError(f"not known; choose from {', '.join(_SCHEMES)}", field="collective", value=name)
    return _SCHEMES[name](group, **options)
