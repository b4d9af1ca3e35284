"""Which k of n elements to send: one file per sparsifier."""

from __future__ import annotations

from trimtab_api.catalogue import sparsifiers

from trimtab.sparsifiers.base import Selected, Selector

__all__ = ["Selected", "Selector", "create", "names"]


def names() -> tuple[str, ...]:
    """Every sparsifier's name; the default first."""
    return sparsifiers.names()


def create(spec: str) -> Selector:
    """A new selector without state.

    Raises `UserError` where ``spec`` names none that is known, or an option that it does not have.
    """
    made: Selector = sparsifiers.create(spec)
    return made
