"""A model that is wrapped in DistributedDataParallel, as frameworks hand it over: the wrapper is made to do nothing.

DDP exchanges only where ``require_backward_grad_sync`` says so, which is how its own ``no_sync`` works.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside a DDP wrapper, or the model itself."""
    inner: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
    return inner


def silence(model: nn.Module, no_sync: Callable[[], contextlib.AbstractContextManager[None]]) -> Callable[[], None]:
    """Keep a DDP wrapper from exchanging gradients and buffers; its ``no_sync`` becomes the session's.

    Returns what undoes it; does nothing to any other model.
    """
    if not isinstance(model, DistributedDataParallel):
        return lambda: None
    model.require_backward_grad_sync = False
    model.no_sync = no_sync  # type: ignore[method-assign, assignment]

    def undo() -> None:
        model.require_backward_grad_sync = True
        del model.no_sync  # the class's is seen again

    return undo
