"""Tells sessions without a GradScaler whether one takes the optimizer's step that is under way.

An optimizer's hooks are not told who calls. So `GradScaler.step` itself says when it begins and ends.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler


class _Present(threading.local):
    is_scaler_stepping = False


_present = _Present()
_lock = threading.Lock()


def watch_scalers() -> None:
    """Have every GradScaler of this process tell of its steps, from now on; a second call does nothing."""
    with _lock:
        if not hasattr(GradScaler.step, "is_watched"):
            GradScaler.step = _watched(GradScaler.step)  # type: ignore[method-assign]


def is_scaler_stepping() -> bool:
    """Return whether, on this thread, a scaler that scales is within its ``step``."""
    return _present.is_scaler_stepping


def _watched(step: Any) -> Any:
    @functools.wraps(step)
    def watched(self: GradScaler, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        before, _present.is_scaler_stepping = _present.is_scaler_stepping, self.is_enabled()
        try:
            return step(self, optimizer, *args, **kwargs)
        finally:
            _present.is_scaler_stepping = before

    watched.is_watched = True  # type: ignore[attr-defined]
    return watched
