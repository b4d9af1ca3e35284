"""``$(NAME)`` in a container's command, arguments and variables, as Kubernetes expands it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` becomes the variable's value, ``$$`` a dollar; a name that is not known stays as it is written."""

    def replace(found: re.Match[str]) -> str:
        return "$" if found[1] else variables.get(found[2], found[0])

    return _REFERENCE.sub(replace, text)


def unknown(text: str, variables: Collection[str]) -> list[str]:
    """The names that ``text`` refers to and `expand` leaves as they are written, in order."""
    return [found[2] for found in _REFERENCE.finditer(text) if not found[1] and found[2] not in variables]
