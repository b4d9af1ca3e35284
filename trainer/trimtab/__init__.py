"""Trimtab: adaptive gradient communication for data-parallel training.

session = trimtab.attach(model, optimizer)
for inputs, targets in session.batches(loader):
    criterion(model(inputs), targets).backward()
    session.step()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimtab.process import moved_modules

if TYPE_CHECKING:
    from trimtab.checkpoint.script_files import read_checkpoint, write_checkpoint
    from trimtab.ddp.comm_hook import HookState, hook
    from trimtab.session.attach import attach
    from trimtab.session.session import Session

__all__ = ["HookState", "Session", "attach", "hook", "read_checkpoint", "write_checkpoint"]

moved_modules.install()


def __getattr__(name: str) -> Any:
    """Import torch only for those who train: ``trimtab --help`` answers at once."""
    if name == "attach":
        from trimtab.session.attach import attach

        return attach
    if name == "Session":
        from trimtab.session.session import Session

        return Session
    if name in ("hook", "HookState"):
        from trimtab.ddp import comm_hook

        return getattr(comm_hook, name)
    if name in ("read_checkpoint", "write_checkpoint"):
        from trimtab.checkpoint import script_files

        return getattr(script_files, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
