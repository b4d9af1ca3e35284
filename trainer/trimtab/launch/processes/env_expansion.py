"""Expands ``$(NAME)`` in a container's command, arguments and variables as Kubernetes does."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` becomes the variable's value and ``$$`` a dollar; references to unknown names are left unchanged."""

    def replace(found: re.Match[str]) -> str:
        return "$" if found[1] else variables.get(found[2], found[0])

    return _REFERENCE.sub(replace, text)


def unknown(text: str, variables: Collection[str]) -> list[str]:
    """The unknown names that ``text`` refers to, in order; `expand` leaves these references unchanged."""
    return [found[2] for found in _REFERENCE.finditer(text) if not found[1] and found[2] not in variables]
