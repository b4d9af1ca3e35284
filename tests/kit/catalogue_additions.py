"""Rows that tests add to the catalogue, which is one for the whole process."""

from __future__ import annotations


def forget_additions() -> None:
    """Leave the catalogue with the schemes that ship, as tests of other files expect it."""
    from trimtab_api.catalogue import AXES, collectives  # here, as importing it takes most tests longer than they do

    for axis in (collectives, *AXES.values()):
        rows, found = axis._rows, axis._found  # noqa: SLF001 - only tests take rows away
        for name in set(rows) - set(axis.built_in):
            del rows[name]
        found.clear()
