"""Field types that humans write with a unit (``2s``, ``25MB``) and code reads in seconds or bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from trimtab_api.catalogue.fusion import MOST_BUFFER_BYTES
from trimtab_api.errors import UserError
from trimtab_api.units import format_duration, format_size, parse_duration, parse_size

#: Written in place of a size for one fusion buffer that holds every tensor.
SINGLE: Literal["single"] = "single"

_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
#: A duration as a user writes it.
DURATION_PATTERN = rf"^{_NUMBER} ?(us|ms|s|min|h)$"
_SIZE_PATTERN = rf"^{_NUMBER} ?(B|kB|MB|GB|KiB|MiB|GiB)$"
#: Of a buffer's size.
HOLDS_NOTHING = "holds nothing; write a size such as 25MB, or single for one buffer"
_BUFFER_PATTERN = rf"^(single|{_NUMBER} ?(B|kB|MB|GB|KiB|MiB|GiB))$"


def _written(pattern: str, remedy: str) -> WithJsonSchema:
    """Return the schema of text that obeys a pattern; the API server tells the remedy and not the pattern."""
    rule = {"rule": f"self.matches(r'{pattern}')", "message": remedy}
    return WithJsonSchema({"type": "string", "maxLength": 32, "x-kubernetes-validations": [rule]})


def _parsed(parse: Callable[[str], float], example: str) -> Callable[[Any], Any]:
    def validate(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"write it with its unit, such as {example}")
        try:
            return parse(value)
        except UserError as error:
            raise ValueError(error.remedy) from None

    return validate


def _parse_buffer_size(text: str) -> Any:
    if text == SINGLE:
        return SINGLE
    size = parse_size(text)
    if size == 0:
        raise UserError(HOLDS_NOTHING)
    if size > MOST_BUFFER_BYTES:
        raise UserError(f"is more than {format_size(MOST_BUFFER_BYTES)}; write single for one buffer")
    return size


def _format_exactly(seconds: float) -> str:
    text = format_duration(seconds)
    return text if parse_duration(text) == seconds else f"{seconds:.9f}s"


def _format_buffer_size(size: int | str) -> str:
    if isinstance(size, str):
        return size
    text = format_size(size)
    return text if parse_size(text) == size else f"{size}B"


Duration = Annotated[
    float,
    BeforeValidator(_parsed(parse_duration, "2s")),
    PlainSerializer(_format_exactly, when_used="json"),
    _written(DURATION_PATTERN, "write a duration such as 100ms or 2s (units: us, ms, s, min, h)"),
]
"""Seconds, written ``2s``."""

BufferSize = Annotated[
    int | Literal["single"],
    BeforeValidator(_parsed(_parse_buffer_size, "25MB")),
    PlainSerializer(_format_buffer_size, when_used="json"),
    _written(_BUFFER_PATTERN, "write a size such as 25MB or 64MiB, or single (units: B, kB, MB, GB, KiB, MiB, GiB)"),
]
"""Bytes, written ``25MB``; or ``single``, one buffer for everything."""


def _parse_positive_size(text: str) -> int:
    size = parse_size(text)
    if size == 0:
        raise UserError("is nothing; write a size such as 50GB")
    return size


Size = Annotated[
    int,
    BeforeValidator(_parsed(_parse_positive_size, "50GB")),
    PlainSerializer(_format_buffer_size, when_used="json"),
    _written(_SIZE_PATTERN, "write a size such as 25MB or 50GB (units: B, kB, MB, GB, KiB, MiB, GiB)"),
]
"""Bytes, more than 0, written ``50GB``."""


def as_written(text: str) -> Any:
    """Return a default as a user would write it; the model's validation turns it into a number."""
    return text
