"""Cuts that somebody names."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.fusion.base import BufferCosts
from trimtab.plan.profile import Profile


def cut_at(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts, *, at: str) -> tuple[int, ...]:
    """``at``: element offsets with + between them."""
    return (0, *map(int, at.split("+")))
