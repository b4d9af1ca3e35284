"""Reads fields of a JSON object, each as the type that it must have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: A tuple, since a union would be made anew for each of some twenty fields of each step.
_NUMBERS = (int, float)


class WrongFieldError(Exception):
    """A field holds a wrong value. `json_files.read_record` makes a `UserError` of it that names the file."""

    def __init__(self, name: str, value: Any, remedy: str) -> None:
        super().__init__(f"{name}: {value!r}: {remedy}")
        self.name = name
        self.value = value
        self.remedy = remedy


def number(data: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """Return a finite number, 0 or more, as every measurement is. Raise KeyError or `WrongFieldError`."""
    value = data[name] if default is None else data.get(name, default)
    if not _is_number(value) or not 0 <= value < math.inf:
        raise WrongFieldError(name, value, "must be a number, 0 or more")
    return float(value)


def whole(data: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return a count. Raise KeyError or `WrongFieldError`."""
    value = data[name] if default is None else data.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WrongFieldError(name, value, "must be a whole number, 0 or more")
    return value


def figure(data: Mapping[str, Any], name: str) -> float | None:
    """Return any number, finite or not; None where there is none. Raise `WrongFieldError`."""
    value = data.get(name)
    if value is not None and not _is_number(value):
        raise WrongFieldError(name, value, "must be a number or null")
    return None if value is None else float(value)


def text(data: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return text. Raise KeyError or `WrongFieldError`."""
    value = data[name] if default is None else data.get(name, default)
    if not isinstance(value, str):
        raise WrongFieldError(name, value, "must be text")
    return value


def flag(data: Mapping[str, Any], name: str, default: bool | None = None) -> bool:
    """Return a boolean. Raise KeyError or `WrongFieldError`."""
    value = data[name] if default is None else data.get(name, default)
    if not isinstance(value, bool):
        raise WrongFieldError(name, value, "must be true or false")
    return value


def mapping(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object. Raise KeyError or `WrongFieldError`."""
    value = data[name]
    if not isinstance(value, dict):
        raise WrongFieldError(name, value, "must be an object")
    return value


def mappings(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects. Raise KeyError or `WrongFieldError`."""
    value = data[name]
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise WrongFieldError(name, value, "must be a list of objects")
    return value


def texts(data: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of text. Raise KeyError or `WrongFieldError`."""
    value = data[name]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise WrongFieldError(name, value, "must be a list of text")
    return value


def numbers(data: Mapping[str, Any]) -> dict[str, float]:
    """Return all fields that hold a finite number."""
    return {name: float(value) for name, value in data.items() if _is_number(value) and math.isfinite(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)
