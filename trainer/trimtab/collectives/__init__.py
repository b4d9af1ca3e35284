"""How N gradients become one mean: one file per scheme, over the primitives in `primitives`.

`create` makes a scheme by name, `names` lists them. Torch is imported by those who use a scheme; `costs` does without.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab_api.errors import UserError

if TYPE_CHECKING:
    from trimtab.collectives.base import Collective, Exchange, Exchanged, Handle, Prepared
    from trimtab.collectives.group import Group
    from trimtab.collectives.transport import CommunicationError

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

_HOMES = {"CommunicationError": "transport", "Group": "group"}


def names() -> tuple[str, ...]:
    """Every scheme's name."""
    return tuple(_schemes())


def create(name: str, group: Group, **options: Any) -> Collective:
    """The scheme ``name`` on the ranks of ``group``; ``options`` are that scheme's own.

    Raises `UserError` for an unknown name.
    """
    schemes = _schemes()
    if name not in schemes:
        raise UserError(f"not known; choose from {', '.join(schemes)}", field="collective", value=name)
    return schemes[name](group, **options)


def _schemes() -> dict[str, Callable[..., Collective]]:
    from trimtab.collectives import artopk
    from trimtab.collectives.all_gather import AllGather
    from trimtab.collectives.dense import dense_ring, dense_tree

    return {"dense-ring": dense_ring, "dense-tree": dense_tree, "all-gather": AllGather, **artopk.VARIANTS}


def __getattr__(name: str) -> Any:
    """The interface, imported when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'base')}"), name)
