"""Records: what the JSON files of a run hold. An error in one names the file, the field, the value and the remedy."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from trimtab_api.errors import UserError
from trimtab_api.input_files import read_bytes

Count: TypeAlias = Annotated[int, Meta(ge=0)]
#: A finite number, 0 or more, as every measurement is. A plain float may be anything: a loss may have diverged.
Measure: TypeAlias = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
#: Only a new run makes a damaged file whole again.
_DAMAGED = "the file is damaged, or no run wrote it: name another directory, or run it again"
_MISSING = "Object missing required field "
#: How people call the types in msgspec's messages.
_WORDS = {
    "int": "a whole number",
    "int >= 0": "a whole number, 0 or more",
    "float": "a number",
    "float >= 0.0": "a number, 0 or more",
    "float > 0.0": "more than 0",
    f"float <= {sys.float_info.max}": "a finite number",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "Number out of range": "a smaller number",
}


class Record(msgspec.Struct, frozen=True):
    """An object in a file. It ignores fields that it does not know, which a later version may have added."""

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Parse an object. Raise `msgspec.ValidationError`; `read_record` explains it to people."""
        return msgspec.convert(data, cls)

    def to_json(self) -> Any:
        """Return plain data."""
        return msgspec.to_builtins(self)


RecordT = TypeVar("RecordT", bound=Record)


def read_record(kind: type[RecordT], data: Any, file: Path | str, remedy: str = "") -> RecordT:
    """Return a record of data from a file; ``remedy`` replaces what is said of a run's files.

    Raises:
        UserError: Names the file and the wrong field.
    """
    try:
        return kind.from_json(data)
    except msgspec.ValidationError as error:
        # It has its facts in its message alone: "Expected `int | null`, got `str` - at `$.links[0].target`".
        complaint, _, place = str(error).replace("`", "").partition(" - at $")
    path = place.removeprefix(".")
    if complaint.startswith(_MISSING):
        name = f"{path}.{complaint.removeprefix(_MISSING)}".lstrip(".")
        remedy = remedy or "the file comes from another version: run it again"
        raise UserError(f"is missing; {remedy}", file=str(file), field=name)
    kinds = complaint.removeprefix("Expected ").partition(", got ")[0].split(" | ")
    problem = f"must be {' or '.join(_WORDS.get(each, each) for each in kinds)}"
    raise UserError(f"{problem}; {remedy or _DAMAGED}", file=str(file), field=path, value=_value_at(path, data))


def _value_at(path: str, data: Any) -> str:
    """Return the value at a path, as of ``links[0].target``; of a path through any key of an object, that object."""
    for part in filter(None, path.replace("[", ".[").split(".")):
        if part == "[...]":
            break
        data = data[int(part[1:-1]) if part.startswith("[") else part]
    return str(data)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        UserError: The file holds something else.
        FileNotFoundError: There is no such file.
    """
    return parse_object(read_bytes(path), path)


def read_file(kind: type[RecordT], path: Path) -> RecordT:
    """Return the record in a file. Raise as `read_json` and `read_record` do."""
    return read_record(kind, read_json(path), path)


def finite_numbers(data: dict[str, Any]) -> dict[str, float]:
    """Return all fields that hold a finite number."""
    numbers = {name: value for name, value in data.items() if type(value) in (int, float)}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def parse_object(line: bytes, file: Path | str, remedy: str = _DAMAGED) -> dict[str, Any]:
    """Return the object in a line. Raise `UserError`, which ends with the ``remedy``, where it holds something else."""
    try:
        data = _decoded(line)
    except (ValueError, RecursionError):
        raise damaged("is not JSON", line, file, remedy) from None
    if not isinstance(data, dict):
        raise damaged("is not a JSON object", line, file, remedy)
    return data


def _decoded(line: bytes) -> Any:
    """Decode JSON; NaN and Infinity too, for which Python's slower decoder is asked: others write them for a loss."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return json.loads(line)


def damaged(what: str, line: bytes, file: Path | str, remedy: str = _DAMAGED) -> UserError:
    """Return the error for a line that holds something else."""
    shown = line[:40].decode(errors="replace").rstrip("\n")
    return UserError(f"{what}; {remedy}", file=str(file), value=shown)
