"""What one rule of a TrainingJob is; `rules` has them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Said in Python of a value, or of a field of it: True says the rule's message, a text is more exact than that.
Verdict = bool | str | None


@dataclass(frozen=True)
class Rule:
    """One rule, evaluated wherever there is a value at its place."""

    at: str
    """Dotted path of the value; ``[]`` is each item of a list; empty: the whole object."""
    holds: str
    """CEL: true of a good value, which it calls `self`."""
    message: str
    field: str = ""
    """The field at fault beneath ``at``, such as ``.plan``; empty: the value itself."""
    wrong: Callable[[Any], Verdict] | None = None
    """Whether a value breaks the rule. None: a type says it in Python, or only a cluster asks."""
    wrong_item: Callable[[Any, Any], Verdict] | None = None
    """The same for each item of the list ``field``, given the value and the item."""

    hides_value: bool = False
    """True if the value at fault may be a secret, which no message repeats."""

    def said(self, verdict: Verdict) -> str:
        """Return what a verdict, which is not empty, says."""
        return self.message if verdict is True else str(verdict)
