"""How N gradients become one mean: one file per scheme, over the primitives in `primitives`.

`create` makes a scheme by its name in the catalogue (`trimtab_api.catalogue.collective`), and imports torch only then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimtab_api import catalogue

if TYPE_CHECKING:
    from trimtab.collectives.base import Collective, Exchange, Exchanged, Handle, Prepared
    from trimtab.collectives.group import Group
    from trimtab.collectives.transport import CommunicationError

__all__ = ["Collective", "CommunicationError", "Exchange", "Exchanged", "Group", "Handle", "Prepared", "create"]

_HOMES = {"CommunicationError": "transport", "Group": "group"}


def create(name: str, group: Group, **options: Any) -> Collective:
    """The scheme ``name`` on the ranks of ``group``; ``options`` are that scheme's own.

    Raises `UserError` for an unknown name.
    """
    made: Collective = catalogue.collectives.factory(name)(group, **options)
    return made


def __getattr__(name: str) -> Any:
    """The interface, imported when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'base')}"), name)
