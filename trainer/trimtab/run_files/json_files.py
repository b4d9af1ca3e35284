"""Files of JSON, whole or a line at a time; an error names the file, the field and the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from trimtab_api.errors import UserError
from trimtab_api.input_files import MAX_RECORD_BYTES, read_bytes
from trimtab_api.units import format_size

from trimtab.run_files.fields import WrongFieldError
from trimtab.run_files.line_file import earlier_part

Record = TypeVar("Record")


class Tail:
    """Reads the lines that a file gained since the last call; a line still being written waits for the next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """Yield each new line as JSON, nothing while the file does not exist. Raise `UserError` on a damaged line."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            if file.seek(0, 2) < self._position:  # it was begun anew (`line_file`)
                self._position = 0
            file.seek(self._position)
            while line := file.readline(MAX_RECORD_BYTES + 1):
                if len(line) > MAX_RECORD_BYTES:
                    raise _damaged(f"has a line of more than {format_size(MAX_RECORD_BYTES)}", line, self._path)
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                yield _parse(line, self._path)


def all_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield every line that is kept of a file, its `earlier_part` first. Raise `UserError` on a damaged line."""
    for each in (earlier_part(path), path):
        yield from Tail(each).new_lines()


def read_record(make: Callable[[Any], Record], data: Any, path: Path) -> Record:
    """Return what ``make`` makes of data from a file.

    Raises:
        UserError: Names the file and the wrong field.
    """
    try:
        return make(data)
    except KeyError as error:
        raise UserError(
            "is missing; the file comes from another version: run it again", file=str(path), field=error.args[0]
        ) from None
    except WrongFieldError as error:
        raise UserError(
            f"{error.remedy}; the file is damaged, or no run wrote it: name another directory, or run it again",
            file=str(path),
            field=error.name,
            value=str(error.value),
        ) from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        UserError: The file holds something else.
        FileNotFoundError: There is no such file.
    """
    return _parse(read_bytes(path), path)


def _parse(line: bytes, path: Path) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged("is not JSON", line, path) from None
    if not isinstance(data, dict):
        raise _damaged("is not a JSON object", line, path)
    return data


def _damaged(what: str, line: bytes, path: Path) -> UserError:
    """Return the error for a damaged file: nothing but a new run makes it whole again."""
    shown = line[:40].decode(errors="replace").rstrip("\n")
    remedy = f"{what}; the file is damaged, or no run wrote it: name another directory, or run it again"
    return UserError(remedy, file=str(path), value=shown)
