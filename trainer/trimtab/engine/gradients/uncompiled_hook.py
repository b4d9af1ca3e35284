"""Hooks of a model's parts that stay behind where the model is copied or saved as a whole.

``torch.save(model)`` and ``copy.deepcopy(model)`` take a module's hooks along. The session's belong to the model that
trains: a copy that averages weights must not be heard, and a file must be read where there is no session.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch


class ModuleHook:
    """Calls what it was made of. A copy of it, or what is read of a file that holds one, does nothing."""

    def __init__(self, call: Callable[..., None]) -> None:
        # Where a model is compiled, what a hook calls (the optimizer's step) must not be compiled with it, nor anew for
        # each optimizer. Loading the compiler takes seconds: where nobody has, nothing is.
        self._call = torch.compiler.disable(call) if "torch._dynamo" in sys.modules else call

    def __call__(self, *args: Any) -> None:
        """Call what the hook was made of, as torch calls hooks; inputs and outputs stay as they are."""
        self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to the ``__exit__`` of a null context: it takes any arguments, returns None, and needs no trimtab."""
        return getattr, (nullcontext(), "__exit__")
