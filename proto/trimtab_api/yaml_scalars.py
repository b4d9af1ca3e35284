"""What an unquoted YAML scalar means, by the rules of kubectl: a job file must mean the same here and on a cluster.

kubectl reads YAML 1.1 with go-yaml 2 and converts it to JSON. So ``Y`` is true, ``1e-4`` is a number, ``010`` is 8,
``008`` is 8, ``12:30`` and ``2024-01-01`` are text, and ``1.0`` is the whole number 1.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **{word: True for text in ("yes", "true", "on") for word in (text, text.capitalize(), text.upper())},
    **{word: False for text in ("no", "false", "off") for word in (text, text.capitalize(), text.upper())},
    **dict.fromkeys(("y", "Y"), True),
    **dict.fromkeys(("n", "N"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_WHOLE = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_SEPARATOR = re.compile(r"(?<=[0-9])_(?=[0-9])")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
#: Characters of a number that can be a 64-bit integer, whatever its base.
_LONGEST_WHOLE = 68
#: From here on, JSON as Go writes it has an exponent, and an API server reads no integer.
_FIRST_EXPONENT = 1e21


def read_plain(text: str) -> Scalar:
    """The value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-.":
        return text
    digits = _SEPARATOR.sub("", text) if text[0] == "." else text.replace("_", "")
    whole = _read_whole(digits)
    if whole is not None and -(2**63) <= whole < 2**63:
        return whole
    number = float(whole or digits) if whole or _FLOAT.fullmatch(digits) else math.inf
    return _as_json(number) if math.isfinite(number) else text


def _as_json(number: float) -> int | float:
    """The number as JSON has it: without a fraction it is a whole number, of the shortest digits that mean it."""
    return int(Decimal(repr(number))) if number.is_integer() and abs(number) < _FIRST_EXPONENT else number


def _read_whole(digits: str) -> int | None:
    """An integer of 64 bits in base 2, 8, 10 or 16, as its prefix says; None for what is none."""
    found = _WHOLE.fullmatch(digits) if len(digits) <= _LONGEST_WHOLE else None
    if found is None:
        return None
    sign, *by_base = found.groups()
    value = next(int(each, base) for each, base in zip(by_base, _BASES, strict=True) if each is not None)
    value = -value if sign == "-" else value
    return value if -(2**63) <= value < (2**63 if sign else 2**64) else None
