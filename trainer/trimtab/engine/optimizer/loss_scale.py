"""A GradScaler's loss scale: undone before gradients enter the exchange, and back on the mean that comes out of it.

So residuals are unscaled, while to a script and to the scaler gradients look as they do on one process. Every rank's
scaler sees the same gradients, infinite ones where the step was dropped, and so comes to the same scale. In local steps
each sees its rank's own: where a round ends ranks agree on the smallest scale.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler


class LossScale:
    """A GradScaler behind its public methods, or none."""

    def __init__(self, scaler: GradScaler | None) -> None:
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._has_update_to_come = False
        self._agreed: tuple[float, int] | None = None
        """Scale, and steps since it changed, that ranks have after the update to come."""

    @property
    def is_scaling(self) -> bool:
        """True if there is a scaler, which leaves out steps whose gradients are not finite."""
        return self._scaler is not None

    def get(self) -> float | None:
        """Return what the loss, and so every gradient, is multiplied by; None without a scaler."""
        return None if self._scaler is None else float(self._scaler.get_scale())

    def unscale(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Bring gradients to their own size, unless that was done; the optimizers' steps will know."""
        for each in optimizers if self._scaler is not None else ():
            with contextlib.suppress(RuntimeError):  # GradScaler's word for: already done since the last step
                self._scaler.unscale_(each)  # type: ignore[union-attr]

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Step each of the optimizers, unless its gradients are not finite, and update the scale."""
        for each in optimizers:
            if self._scaler is None:
                each.step()
            else:
                self._scaler.step(each)
        if self._scaler is not None:
            self._scaler.update()

    def skip_step(self) -> None:
        """Keep the scale, and forget whether gradients were unscaled: no optimizer steps on them."""
        if self._scaler is not None:
            self._scaler.update(self._scaler.get_scale())

    def watch(self, before_update: Callable[[], None]) -> None:
        """Have ``before_update`` called whenever the scaler is about to update its scale; until `release`."""
        if self._scaler is None:
            return
        update = self._scaler.update

        def watched(new_scale: float | Tensor | None = None) -> None:
            before_update()
            update(new_scale)
            agreed, self._agreed = self._agreed, None
            if agreed is not None and new_scale is None:  # else it is the script's word, alike on all ranks
                self._set(*agreed)

        self._scaler.update = watched  # type: ignore[method-assign]

    def release(self) -> None:
        """Let go of the scaler."""
        if self._scaler is not None:
            self._scaler.__dict__.pop("update", None)

    @contextlib.contextmanager
    def before_update(self) -> Iterator[None]:
        """Say that, inside, the scaler has stepped, or left the step out, and has yet to update its scale.

        What ranks agree on there shows once it has: a script that compares the scale before and after, and leaves out
        its scheduler's step where it fell, then sees what another rank's steps of the round have made of it.
        """
        self._has_update_to_come = True
        try:
            yield
        finally:
            self._has_update_to_come = False

    def own(self) -> tuple[float, ...]:
        """Return the scale, and the steps since it changed, as the update to come leaves them; () without a scaler."""
        if self._scaler is None:
            return ()
        state = self._scaler.state_dict()
        scale, num_steps = float(state["scale"]), int(state["_growth_tracker"])
        if not self._has_update_to_come:
            return scale, num_steps
        seen = self._scaler._per_optimizer_states.values()
        if any(bool(each) for found in seen for each in found["found_inf_per_device"].values()):
            return scale * self._scaler.get_backoff_factor(), 0
        if num_steps + 1 == self._scaler.get_growth_interval():
            return scale * self._scaler.get_growth_factor(), 0
        return scale, num_steps + 1

    def agree(self, everyones: Sequence[tuple[float, ...]]) -> None:
        """Go on from the smallest scale of all ranks, and the fewest steps since one of these changed.

        Args:
            everyones: What each rank's `own` returned, the same on every rank.
        """
        if self._scaler is None:
            return
        scale, num_steps = min(everyones)
        if self._has_update_to_come:
            self._agreed = scale, int(num_steps)
        else:
            self._agreed = None
            self._set(scale, int(num_steps))

    def _set(self, scale: float, num_steps: int) -> None:
        assert self._scaler is not None
        self._scaler.load_state_dict({**self._scaler.state_dict(), "scale": scale, "_growth_tracker": num_steps})

    def state_dict(self) -> dict[str, Any]:
        """Return the scaler's state; empty without a scaler."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        if self._scaler is not None:
            self._scaler.load_state_dict(state)


class ReadScale(LossScale):
    """A scaler that the script steps and updates by itself, after the exchange: it is only read."""

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Leave it to the script."""

    def skip_step(self) -> None:
        """Leave it to the script."""

    def watch(self, before_update: Callable[[], None]) -> None:
        """Do nothing: each exchange reads the scale anew."""

    def release(self) -> None:
        """Do nothing: nothing was taken."""


class _Present(threading.local):
    is_scaler_stepping = False


_present = _Present()
_lock = threading.Lock()


def watch_scalers() -> None:
    """Have every GradScaler of this process tell of its steps, from now on; a second call does nothing.

    An optimizer's hooks are not told who calls. So `GradScaler.step` itself says when it begins and ends.
    """
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
