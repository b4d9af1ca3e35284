"""What every row of the catalogue has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """A whole number that a scheme takes, such as the ``steps`` of ``update:steps=8``."""

    name: str
    meaning: str
    default: int | None = None
    """None: it must be given."""
    least: int = 1


@dataclass(frozen=True, kw_only=True)
class Row:
    """One scheme of one axis."""

    name: str
    meaning: str
    """What it does, in one sentence."""
    factory: str = ""
    """``module:attribute`` of what makes it; text, for the contracts carry no torch. Empty where the engine has it."""
    options: tuple[Option, ...] = ()
