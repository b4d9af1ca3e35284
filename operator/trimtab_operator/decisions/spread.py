"""Spreads what recurs, so that jobs which began together, or an operator that has just begun, make no burst of it."""

from __future__ import annotations

from zlib import crc32

#: How much longer than the shortest wait the longest is, as a share of it.
SPREAD = 0.25


def spread(seconds: float, uid: str) -> float:
    """A wait of ``seconds``, or up to `SPREAD` more: always the same for one uid, and evenly spread over many."""
    return seconds * (1.0 + SPREAD * crc32(uid.encode()) / 2**32)
