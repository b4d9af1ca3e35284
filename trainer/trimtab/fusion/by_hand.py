"""Cuts that somebody names."""

from __future__ import annotations

from collections.abc import Sequence


def cut_at(tensor_sizes: Sequence[int], *, at: str) -> tuple[int, ...]:
    """``at``: element offsets with + between them."""
    return (0, *map(int, at.split("+")))
