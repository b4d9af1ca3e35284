"""Records are a by-product of training: what cannot be written is said once, and training goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from trimtab.process.messages import LOGGER

#: Directories whose records are known to be incomplete, which has been said.
_incomplete: set[Path] = set()


@contextlib.contextmanager
def best_effort(directory: Path) -> Iterator[None]:
    """Let an `OSError` within, as on a full disk, only make the records in ``directory`` incomplete."""
    try:
        yield
    except OSError as error:
        if directory not in _incomplete:
            _incomplete.add(directory)
            LOGGER.warning(f"the records in {directory} are incomplete ({error.strerror or error}); training goes on")


def is_complete(directory: Path) -> bool:
    """Return whether all that this process wanted to record in ``directory`` was written."""
    return directory not in _incomplete
