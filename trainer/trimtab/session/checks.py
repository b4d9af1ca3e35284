"""What `attach` refuses before it joins anything: in one line, with the remedy."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parameter import is_lazy
from trimtab_api.errors import UserError

from trimtab.plan.constraints import Script
from trimtab.plan.plan import Plan
from trimtab.session.session import Session

SessionT = TypeVar("SessionT", bound=Session)

_only_session: weakref.ref[Session] | None = None


def check_arguments(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    scheduler: Any,
    scheduler_interval: str,
    scaler: Any,
    extra_state: Sequence[Any],
) -> None:
    """Raise `UserError` for arguments that are wrong on any number of ranks."""
    if isinstance(scheduler, torch.optim.Optimizer) or (scheduler is not None and not hasattr(scheduler, "step")):
        raise UserError("is a scheduler of torch.optim.lr_scheduler", field="scheduler", value=type(scheduler).__name__)
    if scaler is not None and not (hasattr(scaler, "get_scale") and hasattr(scaler, "update")):
        raise UserError("is a torch.amp.GradScaler", field="scaler", value=type(scaler).__name__)
    if not isinstance(extra_state, Iterable):
        raise UserError("is a list", field="extra_state", value=type(extra_state).__name__)
    if scheduler_interval not in ("epoch", "step"):
        raise UserError("is epoch or step", field="scheduler_interval", value=scheduler_interval)
    _check_model(model)
    if not optimizers:
        raise UserError("give it at least one", field="optimizer")
    known = {id(parameter) for parameter in model.parameters()}
    for each in optimizers:
        _check_optimizer(each, known)
    for each in extra_state:
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise UserError(
                "give each a state_dict and a load_state_dict", field="extra_state", value=type(each).__name__
            )


def _check_optimizer(optimizer: torch.optim.Optimizer, known: Collection[int]) -> None:
    """Raise `UserError` unless the optimizer steps parameters of the model, ``known`` by id, by their gradients."""
    for group in optimizer.param_groups:
        if any(id(parameter) not in known for parameter in group["params"]):
            raise UserError(
                "steps parameters that are not in the model; attach the model that the optimizer was created"
                " for, or one nn.ModuleList of all that it steps, with single parameters in a nn.ParameterList",
                field="optimizer",
            )
    check_needs_no_closure(optimizer)


def check_needs_no_closure(optimizer: torch.optim.Optimizer) -> None:
    """Raise `UserError` for an optimizer that needs several gradients a step, as LBFGS does: ranks exchange one."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise UserError(
            "evaluates the model by a closure several times a step, which session.step() cannot; use one that steps"
            " by the gradient alone",
            field="optimizer",
            value=type(optimizer).__name__,
        )


def _check_model(model: nn.Module) -> None:
    """Raise `UserError` if a part of the model exchanges gradients by itself."""
    for name, module in model.named_modules():
        if isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
            where = "model.module" if not name else f"a model whose {name} is the module inside"
            raise UserError(
                f"exchanges gradients by itself; attach {where}, and leave the wrapper out",
                field="model",
                value=type(module).__name__,
            )


def check_turns(optimizers: Sequence[torch.optim.Optimizer], scaler: GradScaler | None) -> None:
    """Raise `UserError` unless each step can be of one optimizer, and of parameters that no other steps."""
    if scaler is not None and scaler.is_enabled():
        raise UserError(
            "does not support alternating optimizers, which one loss scale cannot serve; use autocast in bfloat16",
            field="scaler",
        )
    owned = [id(p) for each in optimizers for group in each.param_groups for p in group["params"]]
    if len(set(owned)) < len(owned):
        raise UserError("alternating optimizers must not share parameters; give each its own", field="optimizer")


def check_model_of_many_ranks(model: nn.Module) -> None:
    """Raise `UserError` for a model whose gradients ranks cannot exchange: lazy, on device meta, or all frozen."""
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(each):
            raise UserError(
                "has no shape before the model's first forward pass; run one batch through the model, and make the"
                " optimizer, before attach",
                field=f"model parameter {name}",
                value=type(each).__name__,
            )
        if each.is_meta:
            raise UserError(
                "is on the meta device and has no values; call model.to_empty(...) and initialize it, or load"
                " its weights, before attach",
                field=f"model parameter {name}",
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(
            "has no parameter that requires a gradient, so there is nothing to train; call requires_grad_(True) on what"
            " is to learn before attach",
            field="model",
            value=type(model).__name__,
        )


def check_optimizer_of_many_ranks(optimizer: torch.optim.Optimizer) -> None:
    """Raise `UserError` for an optimizer of sparse gradients: what comes out of an exchange is dense."""
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise UserError(
            "takes sparse gradients only, and what comes out of an exchange is dense; use Adam, or"
            " nn.Embedding(sparse=False) with any other",
            field="optimizer",
            value=type(optimizer).__name__,
        )


def check_plan(plan: Plan, script: Script, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Raise `UserError` for a plan that the script, which steps by these optimizers, cannot follow."""
    if plan.momentum:
        owns = ((_momentum(each), type(each).__name__) for each in optimizers)
        own, owner = next((each for each in owns if each[0] > 0), (0.0, ""))
        script = replace(script, momentum=own, momentum_of=owner)
    plan.check_for(script)


def _momentum(optimizer: torch.optim.Optimizer) -> float:
    """Return the largest momentum, or first beta, of a group."""
    own: float = max(
        max(group.get("momentum", 0.0), *group.get("betas", ())[:1], 0.0) for group in optimizer.param_groups
    )
    return own


def check_devices(devices: Iterable[torch.device], local_rank: int) -> None:
    """Raise `UserError` if the model is on another rank's GPU: two that share one would wait in NCCL for ever."""
    wrong = sorted({str(device) for device in devices if device.type == "cuda" and device.index != local_rank})
    if wrong:
        raise UserError(
            f"this process is LOCAL_RANK {local_rank}; put the model on cuda:{local_rank}, by the variable LOCAL_RANK",
            field="model",
            value=", ".join(wrong),
        )


def refuse_second_session() -> None:
    """Raise `UserError` while a session is open: two would decide, try and record at cross purposes."""
    before = _only_session() if _only_session is not None else None
    if before is not None and not before.is_closed:
        raise UserError(
            "this process already has an open session, and one process supports one; attach one"
            " nn.ModuleList of all models and all their optimizers (alternating_optimizers=True if they"
            " step one after the other), or close() the first",
            field="attach",
        )


def only_session(session: SessionT) -> SessionT:
    """Remember ``session`` as the one of this process."""
    global _only_session
    _only_session = weakref.ref(session)
    return session
