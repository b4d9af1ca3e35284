"""A script's own checkpoint, which a kill at any moment leaves whole: the newest one, and the one before it.

if session.is_main:
    trimtab.write_checkpoint("model.pt", {"model": model.state_dict(), "session": session.state_dict()})
...
checkpoint = trimtab.read_checkpoint("model.pt")        # None where there is none yet
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab_api.errors import UserError

from trimtab.checkpoint import whole_files
from trimtab.process.messages import LOGGER

_PREVIOUS = ".previous"


def write_checkpoint(path: str | Path, state: Any) -> None:
    """Write the script's own checkpoint so that a kill at any moment leaves a complete file.

    The file before it is kept as ``path`` with ``.previous`` appended. `torch.load` reads both files too. Call it on
    one rank.

    Args:
        path: The file. Its folder is created if needed.
        state: Plain data and tensors.

    Raises:
        UserError: The file cannot be written, or ``state`` holds other objects, such as numbers of NumPy.
    """
    file = Path(path)
    if file.is_dir():  # which would be renamed as if it were the one before
        raise UserError("is a directory; name a file in it", file=str(path))

    def keep_previous() -> None:
        if file.exists():
            file.replace(_previous(file))

    whole_files.write(file, state, keep_previous)


def read_checkpoint(path: str | Path) -> Any:
    """Read the newest complete checkpoint that `write_checkpoint` wrote, onto the CPU.

    The file is verified by its checksum, and nothing in it is executed. If it is damaged, the previous one is read.

    Args:
        path: The file that was given to `write_checkpoint`.

    Returns:
        The state, or None if there is no file yet.

    Raises:
        UserError: The file and the previous one are damaged or cannot be read.
    """
    refusal: UserError | None = None
    for file in (Path(path), _previous(Path(path))):
        if not file.exists():
            continue
        try:
            state = whole_files.read(file, "remove it and the one before it, if any, to begin anew")
        except UserError as error:
            refusal = refusal or error
            continue
        if refusal is not None:
            LOGGER.warning(f"{refusal}; going on from {file}")
        return state
    if refusal is not None:
        raise refusal
    return None


def _previous(file: Path) -> Path:
    return file.with_name(file.name + _PREVIOUS)
