"""Durations, bandwidths and sizes as humans write them, and the SI base units that everything else computes in.

``5ms`` is 0.005 seconds, ``1Gbps`` is 125e6 bytes per second, ``25MB`` is 25e6 bytes. Bandwidth is written in bits, as
networks are sold; sizes in bytes, as tensors are counted.
"""

from __future__ import annotations

import math
import re

from trimtab_api.errors import UserError

#: Seconds in each unit of time.
DURATION_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
#: Bytes per second in each unit of bandwidth.
BANDWIDTH_UNITS = {"bps": 1 / 8, "kbps": 1e3 / 8, "Mbps": 1e6 / 8, "Gbps": 1e9 / 8}
#: Bytes in each unit of size.
SIZE_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]+)", re.ASCII)


def parse_duration(text: str) -> float:
    """Parse a duration such as ``5ms``, ``2s``, ``1.5min``; return seconds.

    Raises:
        UserError: If the text is no duration; the caller adds the field.
    """
    return _parse(text, DURATION_UNITS, "a duration such as 5ms or 2s")


def parse_bandwidth(text: str) -> float:
    """Parse a bandwidth such as ``1Gbps``, ``200Mbps``; return bytes per second.

    Raises:
        UserError: If the text is no bandwidth; the caller adds the field.
    """
    return _parse(text, BANDWIDTH_UNITS, "a bandwidth such as 200Mbps or 1Gbps")


def parse_size(text: str) -> int:
    """Parse a size such as ``25MB``, ``64MiB``; return bytes.

    Raises:
        UserError: If the text is no size; the caller adds the field.
    """
    return round(_parse(text, SIZE_UNITS, "a size such as 25MB or 64MiB"))


def format_duration(seconds: float) -> str:
    """Format seconds in the largest unit that keeps the number at one or more, with three digits: ``5ms``."""
    return _format(seconds, {unit: DURATION_UNITS[unit] for unit in ("us", "ms", "s")})


def format_bandwidth(bytes_per_second: float) -> str:
    """Format bytes per second as bits, in the largest unit that keeps the number at one or more: ``1Gbps``."""
    return _format(bytes_per_second, BANDWIDTH_UNITS)


def format_size(num_bytes: float) -> str:
    """Format bytes in the largest decimal unit that keeps the number at one or more: ``25MB``."""
    return _format(num_bytes, {unit: SIZE_UNITS[unit] for unit in ("B", "kB", "MB", "GB")})


def _parse(text: str, units: dict[str, float] | dict[str, int], example: str) -> float:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise UserError(f"write {example} (units: {', '.join(units)})", value=text)
    amount = float(match[1]) * units[match[2]]
    if not math.isfinite(amount):
        raise UserError(f"is more than can be computed with; write {example}", value=text)
    return amount


def _format(amount: float, units: dict[str, float] | dict[str, int]) -> str:
    if amount == 0:
        return f"0{next(iter(units))}"
    # Compared after rounding to three digits, so that 999.9 of one unit becomes 1 of the next and not 1e+03.
    reached = [unit for unit, scale in units.items() if float(f"{abs(amount) / scale:.3g}") >= 1]
    unit = max(reached, key=units.__getitem__, default=next(iter(units)))
    number = f"{amount / units[unit]:.3g}"
    return f"{float(number):.0f}{unit}" if "e+" in number else f"{number}{unit}"
