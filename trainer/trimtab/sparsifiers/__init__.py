"""Sparsifiers select which k of n elements are sent: one file a sparsifier."""

from __future__ import annotations

from trimtab_api.catalogue import sparsifiers

from trimtab.sparsifiers.base import Selected, Selector

__all__ = ["Selected", "Selector", "create", "names"]


def names() -> tuple[str, ...]:
    """Return the names of all sparsifiers; the default is first."""
    return sparsifiers.names()


def create(spec: str) -> Selector:
    """Create the sparsifier that ``spec`` names, without state.

    Raises:
        UserError: The sparsifier or an option is unknown.
    """
    made: Selector = sparsifiers.create(spec)
    return made
