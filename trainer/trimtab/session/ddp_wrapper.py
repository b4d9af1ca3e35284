"""A model that is wrapped in DistributedDataParallel, as frameworks hand it over: the wrapper is made to do nothing.

DDP exchanges only where ``require_backward_grad_sync`` says so, which is how its own ``no_sync`` works, and what some
scripts (nanoGPT) set by themselves.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any, SupportsIndex

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from trimtab_api.errors import UserError

NoSync = Callable[[], contextlib.AbstractContextManager[None]]


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside a DDP wrapper, or the model itself."""
    inner: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
    return inner


def wrapper_of(parameter: nn.Parameter) -> DistributedDataParallel:
    """Return the wrapper of the model that ``parameter`` is of; DDP does not hand it to its hooks.

    Raises:
        UserError: No wrapper is found, or it trains the model of some of the processes only.
    """
    for each in gc.get_objects():
        if issubclass(type(each), DistributedDataParallel) and any(p is parameter for p in each.parameters()):
            num_ranks = dist.get_world_size(each.process_group)
            if num_ranks != dist.get_world_size():
                raise UserError(
                    "trimtab.hook exchanges among all processes; leave process_group out, or the hook",
                    field="DistributedDataParallel.process_group",
                    value=f"{num_ranks} of {dist.get_world_size()} processes",
                )
            found: DistributedDataParallel = each
            return found
    raise UserError(
        "no DistributedDataParallel is found among Python's objects; call gc.freeze() after the first step",
        field="trimtab.hook",
    )


def skips_unused(wrapper: DistributedDataParallel) -> bool:
    """Return whether DDP looks which parameters no rank has used, and then leaves alone what their ``grad`` was."""
    return bool(wrapper.find_unused_parameters or wrapper.static_graph)


def check_bucket(buffer: Tensor) -> None:
    """Raise `UserError` for gradients that no plan can exchange."""
    if buffer.layout != torch.strided:
        raise UserError(
            "trimtab.hook takes dense gradients; make the model's nn.Embedding with sparse=False, or call"
            " trimtab.attach(ddp_model, optimizer) in place of the hook",
            field="gradient",
            value=str(buffer.layout),
        )
    if buffer.dtype != torch.float32:
        raise UserError(
            "trimtab.hook takes gradients in float32; keep parameters in float32 and use autocast for lower precision",
            field="gradient",
            value=str(buffer.dtype),
        )


def silence(model: nn.Module, no_sync: NoSync) -> Callable[[], None]:
    """Keep a DDP wrapper from exchanging gradients and buffers; its ``no_sync`` becomes the session's.

    While a script has set its ``require_backward_grad_sync`` to False, it is in ``no_sync``. Any other model stays as
    it is.

    Returns:
        A function that undoes all of it.
    """
    if not isinstance(model, DistributedDataParallel):
        return lambda: None
    kind = type(model)
    accumulating = contextlib.ExitStack()
    model.__class__ = _silent(kind, no_sync, accumulating)
    model.no_sync = no_sync  # type: ignore[method-assign, assignment]

    def undo() -> None:
        accumulating.close()
        model.__class__ = kind
        model.require_backward_grad_sync = True
        del model.no_sync  # the class's is seen again

    return undo


def _silent(kind: type, no_sync: NoSync, accumulating: contextlib.ExitStack) -> type:
    """Return a class like ``kind`` whose instances exchange nothing, whatever they are set to."""

    def is_syncing(_: Any) -> bool:
        return False

    def set_syncing(_: Any, value: bool) -> None:
        accumulating.close()
        if not value:
            accumulating.enter_context(no_sync())

    def reduced(self: Any, protocol: SupportsIndex) -> Any:
        """Reduce to a wrapper of torch's, which exchanges."""
        by_torch: Any = kind.__reduce_ex__
        _, _, state, *rest = by_torch(self, protocol)
        return object.__new__, (kind,), {name: value for name, value in state.items() if name != "no_sync"}, *rest

    members = {"require_backward_grad_sync": property(is_syncing, set_syncing), "__reduce_ex__": reduced}
    return type(kind.__name__, (kind,), members)
