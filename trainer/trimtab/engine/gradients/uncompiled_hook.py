"""Hooks of a model's parts: which parts take them, and hooks that stay behind where the model is copied or saved.

``torch.save(model)`` and ``copy.deepcopy(model)`` take a module's hooks along. The session's belong to the model that
trains: a copy that averages weights must not be heard, and a file must be read where there is no session.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn


def unscripted_parts(model: nn.Module) -> list[nn.Module]:
    """Return the parts that take hooks at all, the model first."""
    return [part for part in model.modules() if not isinstance(part, torch.jit.ScriptModule)]


def has_scripted_part(model: nn.Module) -> bool:
    """Return whether a part of the model takes no hooks."""
    return any(isinstance(part, torch.jit.ScriptModule) for part in model.modules())


def is_compiled(part: nn.Module) -> bool:
    """Return whether `torch.compile` has made the part: hooks on parts inside of it would have it compiled anew."""
    return type(part).__name__ == "OptimizedModule"  # not imported for its name alone


def hookable_parts(model: nn.Module) -> list[nn.Module]:
    """Return the parts that take hooks at no cost: neither scripted nor inside of a compiled part."""
    parts = unscripted_parts(model)
    inside = {id(each) for part in parts if is_compiled(part) for each in part.modules() if each is not part}
    return [part for part in parts if id(part) not in inside]


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
