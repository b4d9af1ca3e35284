"""One rank's state as a file: written whole or not at all, and read without running anything that it might hold.

All ranks write theirs of one step, and remove those of other steps only when all have: whenever a run is killed, one
step is there whole.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from trimtab_api.errors import UserError

_NAME = re.compile(r"rank-(\d+)-of-(\d+)-step-(\d+)\.pt")
_TEMPORARY = ".partial"


@dataclass(frozen=True, order=True)
class RankFile:
    """What one rank kept at one step."""

    step: int
    num_ranks: int
    rank: int

    @property
    def name(self) -> str:
        """Of the file, in its folder."""
        return f"rank-{self.rank}-of-{self.num_ranks}-step-{self.step}.pt"


def write(folder: Path, file: RankFile, state: dict[str, Any]) -> None:
    """Keep ``state``, of plain data and tensors, on disk when this returns. Raises `UserError`."""
    partial = folder / (file.name + _TEMPORARY)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as out:
            torch.save(state, out)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(folder / file.name)
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except (OSError, RuntimeError) as error:  # torch's own writer says what failed as a RuntimeError
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise UserError(f"cannot be written ({why}); name a folder that can", file=str(folder / file.name)) from error


def read(folder: Path, file: RankFile) -> dict[str, Any]:
    """What `write` kept, on the CPU. Raises `UserError` where it is damaged or not there."""
    path = folder / file.name
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError("is not there; have all files where every rank finds them", file=str(path)) from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise UserError("is damaged; remove the files of its step to go on from an earlier one", file=str(path)) from (
            error
        )
    if not isinstance(state, dict):
        raise UserError("holds no state of a rank; name another folder", file=str(path))
    return state


def found(folder: Path) -> list[RankFile]:
    """All that are there."""
    names = [_NAME.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(RankFile(int(name[3]), int(name[2]), int(name[1])) for name in names if name)


def newest_whole(files: Iterable[RankFile]) -> tuple[int, int] | None:
    """The last step of which all ranks' files are among these, and how many ranks those were."""
    known = set(files)
    steps = {(each.step, each.num_ranks) for each in known}
    whole = [(step, size) for step, size in steps if all(RankFile(step, size, rank) in known for rank in range(size))]
    return max(whole, default=None)


def remove_others(folder: Path, step: int, num_ranks: int) -> None:
    """Remove what is of another step or another number of ranks, and what was never finished."""
    for file in found(folder):
        if (file.step, file.num_ranks) != (step, num_ranks):
            (folder / file.name).unlink(missing_ok=True)
    for path in folder.glob(f"rank-*{_TEMPORARY}"):
        path.unlink(missing_ok=True)
