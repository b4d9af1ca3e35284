"""The text of one axis of a plan: a scheme's name and its options, ``name:key=value:key=value``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """One option of a scheme."""

    name: str
    read: Callable[[str], Any]
    """From its text to its value, which prints as that text; raises ValueError with the remedy."""
    meaning: str
    default: Any = None
    """None: it must be given."""
    auto: Callable[[int], tuple[Any, ...]] | None = None
    """Returns the values at so many ranks for which ``auto`` stands; None: ``auto`` is not taken."""
    static_only: tuple[Any, ...] = ()
    """Values by which gradient is lost, as published: no controller chooses them."""


def split_spec(text: str) -> tuple[str, dict[str, str]]:
    """Split a spec's text into its name and its unread options.

    Raises:
        ValueError: If an option has no value, or is given twice.
    """
    name, *parts = text.split(":")
    options: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise ValueError(f"write an option as key=value, and not {part!r}")
        if key in options:
            raise ValueError(f"the option {key} is given twice; leave out one")
        options[key] = value
    return name, options


def parse_options(options: Mapping[str, str], known: tuple[Option, ...]) -> dict[str, Any]:
    """Return the values of all ``known`` options, by name.

    Raises:
        ValueError: If an option is not known, is missing, or has a value that it cannot have.
    """
    unknown = [name for name in options if name not in {each.name for each in known}]
    if unknown:
        takes = ", ".join(each.name for each in known)
        raise ValueError(f"takes no option {unknown[0]}; {f'it takes {takes}' if takes else 'it takes none'}")
    values: dict[str, Any] = {}
    for option in known:
        if option.name in options:
            try:
                values[option.name] = option.read(options[option.name])
            except ValueError as error:
                raise ValueError(f"{option.name}={options[option.name]}: {error}") from None
        elif option.default is None:
            raise ValueError(f"needs the option {option.name}: {option.meaning}")
        else:
            values[option.name] = option.default
    return values


def format_spec(name: str, values: Mapping[str, Any], known: tuple[Option, ...]) -> str:
    """Return the text of a spec, its options sorted and without those that have their default."""
    parts = sorted((option.name, values[option.name]) for option in known if values[option.name] != option.default)
    return ":".join([name, *(f"{key}={value}" for key, value in parts)])


#: The most that an option may count: what an int32 holds.
MOST = 2**31 - 1
#: Most elements of a gradient, which then has four terabytes.
MOST_ELEMENTS = 10**12
#: Bounds of numbers that float32 holds well.
_LEAST_POSITIVE, _MOST_POSITIVE = 1e-30, 1e30
_DIGITS = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


def whole_number(least: int, most: int = MOST) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``least`` to ``most``."""

    def read_number(text: str) -> int:
        if not _DIGITS.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"write a whole number, {least} to {most}")
        return int(text)

    return read_number


def positive(text: str) -> float:
    """Parse a number more than 0, from 1e-30 to 1e30: float32 holds it."""
    value = float(text) if _DECIMAL.fullmatch(text) else 0.0
    if not _LEAST_POSITIVE <= value <= _MOST_POSITIVE:
        raise ValueError("write a number more than 0, 1e-30 to 1e30, such as 0.01")
    return value


def share(text: str) -> float:
    """Parse a number from 0 up to, and without, 1."""
    value = float(text) if _DECIMAL.fullmatch(text) else 1.0
    if not 0 <= value < 1:
        raise ValueError("write a number in [0, 1), such as 0.9")
    return value


def one_of(*known: str) -> Callable[[str], str]:
    """Return a parser of one of some words."""

    def read_word(text: str) -> str:
        if text not in known:
            raise ValueError(f"choose from {', '.join(known)}")
        return text

    return read_word
