"""Which k of n elements to send: one file per sparsifier, by its name in `trimtab_api.catalogue.sparsifier`."""

from __future__ import annotations

from typing import Any

from trimtab_api import catalogue

from trimtab.sparsify.base import Selected, Selector

__all__ = ["Selected", "Selector", "create"]


def create(name: str, **options: Any) -> Selector:
    """A new selector without state; ``options`` are the class's own.

    Raises `UserError` for a name that is not known.
    """
    made: Selector = catalogue.sparsifiers.factory(name)(**options)
    return made
