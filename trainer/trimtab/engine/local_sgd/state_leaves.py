"""What lies in an optimizer's state or in its groups, however nested: its numbers and tensors, in one order.

So ranks whose optimizers keep the same things in the same places can take over one rank's, without sending code.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from trimtab_api.errors import UserError

#: Types of settings: they say how an optimizer works, and are no outcome of its steps.
_SETTINGS = (str, bytes, torch.dtype, torch.device, torch.memory_format, type(None))


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors, numbers and settings in ``value``, by name; of quantized tensors what they are made of.

    Raises:
        UserError: Something is neither, nor a dict, list or tuple of such.
    """
    parts = _parts(value)
    if parts is not None:
        for key, part in parts:
            yield from leaves(part, f"{name}.{key}")
    elif isinstance(value, (Tensor, Real, *_SETTINGS)):
        yield name, value
    else:
        raise UserError(
            "is no number, tensor, or container of such, so ranks cannot take over one's",
            field=name,
            value=type(value).__name__,
        )


def layout(value: Any, name: str) -> str:
    """Return what lies in ``value`` and where, whatever its numbers are; raises as `leaves`."""
    return " ".join(f"{path}:{_kind(leaf)}" for path, leaf in leaves(value, name))


def numbers_of(value: Any) -> list[float]:
    """Return the numbers in ``value``, as plain JSON."""
    return [_plain(leaf) for _, leaf in leaves(value, "") if isinstance(leaf, Real)]


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors in ``value``."""
    return [leaf for _, leaf in leaves(value, "") if isinstance(leaf, Tensor)]


def with_numbers(value: Any, numbers: Iterator[float]) -> Any:
    """Return ``value`` with other numbers, as `numbers_of` has them: changed in place, but for tuples and numbers."""
    if isinstance(value, Real):
        new = next(numbers)
        return value if new == _plain(value) else new
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            value[key] = with_numbers(value[key], numbers)
    elif isinstance(value, list):
        value[:] = [with_numbers(each, numbers) for each in value]
    elif isinstance(value, tuple):
        changed = [with_numbers(each, numbers) for each in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    return value


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return what ``value`` is made of, by name; None if it is a leaf."""
    if isinstance(value, dict):
        return [(str(key), value[key]) for key in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        return [(str(index), part) for index, part in enumerate(value)]
    if isinstance(value, Tensor) and is_traceable_wrapper_subclass(value):
        return [(name, getattr(value, name)) for name in value.__tensor_flatten__()[0]]
    return None


def _kind(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return f"{leaf.dtype}{list(leaf.shape)}"
    return "number" if isinstance(leaf, Real) else type(leaf).__name__


def _plain(number: Real) -> float:
    if isinstance(number, (bool, int, float)):
        return number
    return int(number) if isinstance(number, Integral) else float(number)
