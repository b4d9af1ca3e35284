"""``$(NAME)`` in a container's command, arguments and variables, as Kubernetes expands it."""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` becomes the variable's value, ``$$`` a dollar; a name that is not known stays as it is written."""

    def replace(found: re.Match[str]) -> str:
        return "$" if found[1] else variables.get(found[2], found[0])

    return _REFERENCE.sub(replace, text)
