"""Numbers that a script hands over: Python's, NumPy's and torch's, converted or refused where they come in.

What a library made, such as a NumPy scalar, is no plain number in JSON; it would fail later, and on rank 0 alone.
"""

from __future__ import annotations

import operator
from typing import Any, SupportsFloat

import numpy as np
import torch
from torch import Tensor
from trimtab_api.errors import UserError

#: Kinds of NumPy types that are real numbers: bool, int, unsigned, float.
_REAL_KINDS = "biuf"


def is_one_number(value: Any) -> bool:
    """Tell whether a value is one real number, without waiting for the device that a tensor is on."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and not value.is_complex() and not value.is_meta
    if isinstance(value, np.ndarray | np.generic):
        return value.size == 1 and value.dtype.kind in _REAL_KINDS
    return isinstance(value, SupportsFloat) and not isinstance(value, str | bytes)


def check_one_number(value: Any, field: str) -> None:
    """Refuse what is not one real number.

    Raises:
        UserError: The value is no number, or holds several, or a complex one.
    """
    if not is_one_number(value):
        shown = f"{type(value).__name__} of shape {list(value.shape)}" if hasattr(value, "shape") else str(value)[:80]
        raise UserError("hand over one real number", field=field, value=shown)


def checked_loss(loss: Any) -> Tensor | float | None:
    """Return the loss that a script hands over with a step; a tensor stays one, as its GPU need not be waited for yet.

    Raises:
        UserError: It is a closure or no number.
    """
    if callable(loss):
        raise UserError("takes the loss, not a closure; call loss.backward() before it", field="session.step")
    if loss is None:
        return None
    if isinstance(loss, Tensor):
        check_one_number(loss, "loss")
        return loss
    return one_number(loss, "loss")


def one_number(value: Any, field: str) -> float:
    """Convert a number, or a tensor or array of one element.

    Raises:
        UserError: As `check_one_number`.
    """
    check_one_number(value, field)
    try:
        return float(value.detach().item() if isinstance(value, Tensor) else value.item())
    except AttributeError:  # no tensor, and no array
        pass
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # as an array of another library's raises
        raise UserError("hand over one real number", field=field, value=str(value)[:80]) from None


def whole_number(value: Any, field: str) -> int:
    """Convert a whole number of any library's.

    Raises:
        UserError: The value is none.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise UserError("hand over a whole number", field=field, value=str(value)[:80]) from None


def to_reduce(value: Any) -> Tensor:
    """Convert a number, a tensor or an array to float64, to be reduced over ranks.

    Raises:
        UserError: The value is none of these, or complex.
    """
    if isinstance(value, Tensor) and not value.is_complex():
        return value.detach().double()
    if isinstance(value, np.ndarray) and value.dtype.kind in _REAL_KINDS:
        return torch.from_numpy(value.astype(np.float64))
    if isinstance(value, Tensor | np.ndarray | list | tuple):
        raise UserError(
            "hand over a number, or a tensor or an array of real numbers", field="value", value=str(value)[:80]
        )
    return torch.tensor(one_number(value, "value"), dtype=torch.float64)


def as_handed_over(value: Any, reduced: Tensor) -> Any:
    """Give what was reduced the kind, shape, type and device of what was handed over; a number becomes a float."""
    if isinstance(value, Tensor):
        return reduced.reshape(value.shape).to(device=value.device, dtype=value.dtype)
    if isinstance(value, np.ndarray) and value.ndim:
        return reduced.cpu().numpy().reshape(value.shape).astype(value.dtype)
    return float(reduced.item())


def plain_counts(state: Any) -> Any:
    """Convert the whole numbers of a dictionary to plain JSON; whatever else lies in it becomes text."""
    if not isinstance(state, dict):
        return None
    return {str(key): _plain(value) for key, value in state.items()}


def _plain(value: Any) -> int | str | None:
    try:
        return None if value is None else operator.index(value)
    except TypeError:
        return str(value)
