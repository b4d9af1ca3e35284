"""Trimtab: adaptive gradient communication for data-parallel training.

session = trimtab.attach(model, optimizer)
for inputs, targets in session.batches(loader):
    criterion(model(inputs), targets).backward()
    session.step()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.attachment import attach
    from trimtab.ddp_hook import HookState, hook
    from trimtab.session import Session

__all__ = ["HookState", "Session", "attach", "hook"]


def __getattr__(name: str) -> Any:
    """Import torch only for those who train: ``trimtab --help`` answers at once."""
    if name == "attach":
        from trimtab.attachment import attach

        return attach
    if name == "Session":
        from trimtab.session import Session

        return Session
    if name in ("hook", "HookState"):
        from trimtab import ddp_hook

        return getattr(ddp_hook, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
