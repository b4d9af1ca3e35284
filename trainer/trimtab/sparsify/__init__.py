"""Which k of n elements to send: one file per sparsifier."""

from __future__ import annotations

from typing import Any

from trimtab_api.errors import UserError

from trimtab.sparsify.base import Selected, Selector
from trimtab.sparsify.mstopk import MSTopK
from trimtab.sparsify.topk import TopK
from trimtab.sparsify.tracked import Tracked

__all__ = ["Selected", "Selector", "create", "names"]

_SPARSIFIERS: dict[str, type[Selector]] = {sparsifier.name: sparsifier for sparsifier in (Tracked, TopK, MSTopK)}


def names() -> tuple[str, ...]:
    """The names that `create` knows; the default first."""
    return tuple(_SPARSIFIERS)


def create(name: str, **options: Any) -> Selector:
    """A new selector without state; ``options`` are the class's own.

    Raises `UserError` for a name that is not known.
    """
    try:
        sparsifier = _SPARSIFIERS[name]
    except KeyError:
        raise UserError(f"not known; choose from {', '.join(names())}", field="sparsifier", value=name) from None
    return sparsifier(**options)
