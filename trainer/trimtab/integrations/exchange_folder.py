"""A folder with what the exchange carries, in or beside a framework's own checkpoint."""

from __future__ import annotations

from pathlib import Path

from trimtab.process.messages import LOGGER
from trimtab.session.session import Session

#: The folder's name in a checkpoint that is a folder, and the ending of its name beside one that is a file.
NAME = "trimtab"


def go_on(session: Session, folder: Path, checkpoint: object) -> None:
    """Load what the exchange carried, if any rank finds it; every rank calls it together, before the first step."""
    if session.num_ranks == 1:
        return
    if session.all_reduce(float(folder.is_dir()), "max"):
        session.load_exchange(folder)
    elif session.is_main:
        LOGGER.warning(f"{checkpoint} has no {folder.name} of this job's; residuals start at zero")
