"""A gradient that has not arrived: whoever looks at it, or changes it, waits for it, and gets what has arrived.

So a script that clips, logs norms or changes gradients between ``backward()`` and its step sees the mean over ranks
under every schedule, and one that leaves gradients alone waits for nothing. torch tells of each function of Python's
side that is given the tensor (``__torch_function__``), attributes included. Extensions that are handed its memory alone
are not told of: before these a script calls ``session.synchronize()``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _foreach_utils


class LazyGradient(Tensor):
    """Lies where the mean is to arrive."""

    _arrived: Tensor
    _wait: Callable[[], object]

    @staticmethod
    def of(view: Tensor, wait: Callable[[], object]) -> LazyGradient:
        """Return a late gradient for ``view``, which holds the mean once ``wait`` has returned."""
        late = view.detach().as_subclass(LazyGradient)
        late._arrived, late._wait = view, wait
        return late

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Call ``func``, one of whose arguments is late, once that has arrived."""
        return func(*_arrived(tuple(args)), **_arrived(kwargs or {}))


def _arrived(value: Any) -> Any:
    """Return ``value`` with the means that have arrived in place of late gradients, also in lists and mappings."""
    if isinstance(value, LazyGradient):
        with torch._C.DisableTorchFunctionSubclass():
            value._wait()
            return value._arrived
    if isinstance(value, Mapping):
        return {name: _arrived(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_arrived, value))
    return value


# torch clips many tensors at once only where it knows their types: norms are to be the same to the last bit.
getattr(_foreach_utils, "_foreach_supported_types", []).append(LazyGradient)
