"""accelerate: ``accelerator.save_state`` and ``load_state`` keep what the exchange carries as well.

model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
session = trimtab.attach(model, optimizer)
keep_exchange(accelerator, session)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from trimtab.integrations import exchange_folder
from trimtab.session.session import Session


class Accelerator(Protocol):
    """What is called of accelerate's class of that name."""

    def register_save_state_pre_hook(self, hook: Any) -> Any:
        """Call ``hook`` on every rank with models, weights and the folder of a checkpoint that is written."""

    def register_load_state_pre_hook(self, hook: Any) -> Any:
        """Call ``hook`` on every rank with models and the folder of a checkpoint that is read."""

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Keep the state of objects in each checkpoint; it is loaded last."""


def keep_exchange(accelerator: Accelerator, session: Session) -> None:
    """Save the session with ``accelerator.save_state``, and restore it with ``load_state``.

    Call it once, after `trimtab.attach` and before the first ``load_state``.

    Args:
        accelerator: The script's ``Accelerator``.
        session: What `trimtab.attach` returned.
    """
    part = _Part(session)
    accelerator.register_save_state_pre_hook(part.save)
    accelerator.register_load_state_pre_hook(part.find)
    accelerator.register_for_checkpointing(part)


class _Part:
    """The session's part of a checkpoint: how far training has come in a file, the exchange in a folder."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._folder = Path()

    def save(self, models: Any, weights: Any, folder: str) -> None:
        """Keep what the exchange carries."""
        self._session.save_exchange(Path(folder) / exchange_folder.NAME)

    def find(self, models: Any, folder: str) -> None:
        """Remember from where the checkpoint is read: the exchange comes after the model's weights."""
        self._folder = Path(folder)

    def state_dict(self) -> dict[str, Any]:
        """Return how far training has come."""
        return self._session.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._session.load_state_dict(state)
        exchange_folder.go_on(self._session, self._folder / exchange_folder.NAME, self._folder)
