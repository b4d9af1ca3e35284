"""One rank's state as a file, named by its rank and step.

All ranks write theirs of one step. Once all have, those of older steps are removed but for the newest whole one: the
script's own checkpoint may still be of that step when a run is killed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab_api.errors import UserError

from trimtab.checkpoint import whole_files

_NAME = re.compile(r"rank-(\d+)-of-(\d+)-step-(\d+)\.pt")


@dataclass(frozen=True, order=True)
class RankFile:
    """A file of one rank at one step."""

    step: int
    num_ranks: int
    rank: int

    @property
    def name(self) -> str:
        """Name of the file, in its folder."""
        return f"rank-{self.rank}-of-{self.num_ranks}-step-{self.step}.pt"


def write(folder: Path, file: RankFile, state: dict[str, Any]) -> None:
    """Keep ``state``, of plain data and tensors, on disk when this returns. Raises `UserError`."""
    whole_files.write(folder / file.name, {"file": _identity(file), **state})


def read(folder: Path, file: RankFile) -> dict[str, Any]:
    """Read what `write` kept, to the CPU. Raise `UserError` if it is damaged, missing, or another rank's or step's."""
    path = folder / file.name
    state = whole_files.read(path, "remove the files of its step to go on from an earlier one")
    if not isinstance(state, dict) or "file" not in state:
        raise UserError("holds no state of a rank; name another folder", file=str(path))
    if state.pop("file") != _identity(file):
        raise UserError("holds the state of another rank or step; do not rename these files", file=str(path))
    return state


def _identity(file: RankFile) -> list[int]:
    return [file.step, file.num_ranks, file.rank]


def found(folder: Path) -> list[RankFile]:
    """Return all files that are there."""
    names = [_NAME.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(RankFile(int(name[3]), int(name[2]), int(name[1])) for name in names if name)


def whole_steps(files: Iterable[RankFile]) -> list[tuple[int, int]]:
    """Return the steps of which all ranks' files are here, each with its number of ranks, the newest first."""
    known = set(files)
    steps = {(each.step, each.num_ranks) for each in known}
    whole = [(step, size) for step, size in steps if all(RankFile(step, size, rank) in known for rank in range(size))]
    return sorted(whole, reverse=True)


def remove_others(folder: Path, kept: Collection[tuple[int, int]]) -> None:
    """Remove what is of no step and number of ranks in ``kept``, and what was never finished."""
    for file in found(folder):
        if (file.step, file.num_ranks) not in kept:
            (folder / file.name).unlink(missing_ok=True)
    for path in folder.glob(f"rank-*{whole_files.PARTIAL}"):
        path.unlink(missing_ok=True)
