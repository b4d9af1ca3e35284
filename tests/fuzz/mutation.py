"""Damaged inputs, made of good ones: bytes that are flipped, cut and spliced, and fields of the wrong type or size."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from typing import Any

import yaml

_ODD_BYTES = [
    b"\0",
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\x80" + b"\0" * 7,
    b"\r\n",
    b"{",
    b"[" * 3000,
    b"&a [*a,*a]",
    b"\xef\xbb\xbf",
]
_ODD_NUMBERS: list[Any] = [0, -1, 2**31, 2**63, 2**64, 10**400, -0.0, 1e308, 5e-324, math.inf, -math.inf, math.nan]
_ODD_TEXTS = ["", "0", "nan", "1e999", "٣", "\0", "a" * 5000, "../../etc/passwd", "\ud83d\ude00"]
_ODD_VALUES = [*_ODD_NUMBERS, *_ODD_TEXTS, None, True, [], {}, [[]], [None] * 300, {"": ""}, {"$": "tensor"}]


def mutated(data: bytes, others: Sequence[bytes], draw: random.Random) -> bytes:
    """Return ``data`` with one to four changes, some of them taken from ``others``."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        data = _change_field(data, draw) if draw.random() < 0.4 else _change_bytes(data, others, draw)
    return data


def _change_bytes(data: bytes, others: Sequence[bytes], draw: random.Random) -> bytes:
    place, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    match draw.randrange(7):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + data[end:]
        case 2:
            return data[:place] + draw.choice(_ODD_BYTES) + data[place:]
        case 3:
            return data[:end] + data[place:end] + data[end:]
        case 4:
            other = draw.choice(others)
            start = draw.randrange(len(other) + 1)
            return data[:place] + other[start : start + draw.randrange(1, 200)] + data[end:]
        case 5:
            return data[:place] + draw.randbytes(draw.randrange(1, 9)) + data[place:]
    changed = bytearray(data)
    if changed:
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _change_field(data: bytes, draw: random.Random) -> bytes:
    """Change a value, a key or a list of JSON or YAML; leave other data as they are."""
    try:
        text = data.decode()
        is_json = text.lstrip().startswith(("{", "["))
        root = json.loads(text) if is_json else yaml.safe_load(text)
        places = list(_places(root)) if isinstance(root, dict | list) else []
    except (ValueError, yaml.YAMLError, RecursionError):
        return data
    if not places:
        return data
    parent, key = draw.choice(places)
    match draw.randrange(5):
        case 0 | 1:
            parent[key] = draw.choice(_ODD_VALUES)
        case 2:
            del parent[key]
        case 3:
            parent[key] = draw.choice([[parent[key]], {"a": parent[key]}, str(parent[key])])
        case 4:
            other, at = draw.choice(places)
            parent[key] = other[at] if other is not parent else draw.choice(_ODD_VALUES)
    try:
        return (json.dumps(root) if is_json else yaml.safe_dump(root)).encode()
    except (ValueError, RecursionError, yaml.YAMLError):  # a value within itself; half of a surrogate pair
        return data


def _places(value: Any) -> Any:
    """Yield each place of a value in its container."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(items):
        yield value, key
        if isinstance(each, dict | list):
            yield from _places(each)
