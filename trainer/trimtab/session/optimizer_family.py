"""The family that an optimizer belongs to, on which the cost of compression depends.

See docs/explanation/convergence-under-compression.md.

Judged by what can be seen of it, for most optimizers come from elsewhere: the names of its class and of those it is
derived from, what its parameter groups and its state hold. Whatever speaks for Adam's kin outweighs a base class named
SGD: their law is the more careful one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from trimtab.control.types import OptimizerFamily
from trimtab.engine.local_sgd.second_moments import keeps_adams_moments

if TYPE_CHECKING:
    import torch

#: In a class's name: it divides steps by a running size of the gradient, or keeps no more of a gradient than its sign.
_ADAMS_KIN = re.compile(
    "ada|adema|rmsprop|lamb|lion|novograd|sophia|shampoo|soap|muon|prodigy|signsgd|signum", re.IGNORECASE
)
#: A class's whole name, but for a variant's mark: SGD, ASGD, SGDW, FusedSGD, SGD8bit.
_SGDS_KIN = re.compile(r"(?:fused)?a?sgdw?(?:\d+bit)?", re.IGNORECASE)
#: In the name of what an optimizer keeps for a parameter: a running mean or maximum of squared or absolute gradients.
_SECOND_MOMENT = re.compile(r"(?:^|_)sq(?:uare)?(?:_|$)|second_moment|exp_inf")
#: Attributes in which wrappers keep the optimizer that they wrap.
_WRAPPED = ("optimizer", "optim", "base_optimizer")


def family_of(*optimizers: torch.optim.Optimizer) -> OptimizerFamily:
    """Return the family of an optimizer, or of what it wraps; of several, the one that pays most for compression.

    ``unknown`` where nothing tells.
    """
    kinds = [_family_of_one(each) for each in optimizers]
    name = " and ".join(getattr(each, "shown_as", type(each).__name__) for each in optimizers)
    kind = next(kind for kind in ("adam", "unknown", "sgd") if kind in kinds)
    return OptimizerFamily(name, kind, all(keeps_adams_moments(each) for each in optimizers))


def _family_of_one(optimizer: torch.optim.Optimizer) -> Literal["adam", "sgd", "unknown"]:
    kinds = [_kind(each) for each in _unwrapped(optimizer)]
    if "adam" in kinds:
        return "adam"
    return "sgd" if "sgd" in kinds else "unknown"


def _kind(optimizer: Any) -> str | None:
    names = [each.__name__ for each in type(optimizer).__mro__]
    if any(_ADAMS_KIN.search(name) for name in names) or _shows_second_moments(optimizer):
        return "adam"
    return "sgd" if any(_SGDS_KIN.fullmatch(name) for name in names) else None


def _shows_second_moments(optimizer: Any) -> bool:
    """Return whether a group has two betas, or a parameter's state a second moment (once a step was taken)."""
    betas = [group.get("betas") for group in getattr(optimizer, "param_groups", ())]
    if any(isinstance(each, (tuple, list)) and len(each) >= 2 for each in betas):
        return True
    keys = (key for state in getattr(optimizer, "state", {}).values() for key in _keys(state))
    return any(isinstance(key, str) and _SECOND_MOMENT.search(key) for key in keys)


def _keys(state: Any) -> Iterable[Any]:
    return state.keys() if hasattr(state, "keys") else ()


def _unwrapped(optimizer: Any) -> list[Any]:
    """Return the optimizer, and what it wraps, outermost first."""
    found = [optimizer]
    while True:
        inner = next((getattr(found[-1], name, None) for name in _WRAPPED if hasattr(found[-1], name)), None)
        if inner is None or not hasattr(inner, "param_groups") or any(inner is each for each in found):
            return found
        found.append(inner)
