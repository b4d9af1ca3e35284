"""Tells samplers, data sets and loaders which epoch it is, unless the script does so by itself."""

from __future__ import annotations

import contextlib
from typing import Any
from weakref import WeakKeyDictionary

#: What keeps the number that ``set_epoch`` was last given: of torch and datasets; of accelerate.
_KEPT_AS = ("epoch", "iteration")


class EpochNumbers:
    """The numbers that were told so far. What has another by then was told by the script, and stays the script's."""

    def __init__(self) -> None:
        self._told: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()
        """None: the script tells it."""

    def tell(self, what: Any, number: int) -> None:
        """Call ``what.set_epoch(number)``, where there is such a method and the script leaves it to us."""
        if not hasattr(what, "set_epoch"):
            return
        with contextlib.suppress(TypeError):  # what cannot be a key is always told
            if self._is_the_scripts(what):
                self._told[what] = None
                return
            self._told[what] = number
        what.set_epoch(number)

    def _is_the_scripts(self, what: Any) -> bool:
        last = self._told.get(what, 0)  # they begin at 0 by themselves
        kept = next((getattr(what, name) for name in _KEPT_AS if hasattr(what, name)), None)
        return last is None or (type(kept) is int and kept >= 0 and kept != last)
