"""Loading of a TrainingJob from a file, or one line that names file, field, value and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trimtab_api.errors import UserError
from trimtab_api.input_files import read_text
from trimtab_api.trainingjob.types import KIND, TrainingJob
from trimtab_api.yaml import parse_documents

_HEAD = "`apiVersion: trimtab.dev/v1alpha1` and `kind: TrainingJob`"


def load_training_job(path: str | Path) -> TrainingJob:
    """Read a TrainingJob that a user wrote, in YAML or JSON.

    Raises:
        UserError: For the first mistake in it.
    """
    return _load(path)


def load_job_file(path: str | Path) -> TrainingJob:
    """Read the TrainingJob that a launcher or the operator handed to a process.

    The writer may be of a newer version: fields that this version does not know are ignored.

    Raises:
        UserError: If the file is wrong.
    """
    return _load(path, ignore_unknown=True)


def parse_training_job(text: str, ignore_unknown: bool = False) -> TrainingJob:
    """Parse a TrainingJob from YAML or JSON text.

    As for kubectl, the text may have several documents, and a `List` stands for its items. Exactly one of them must be
    a TrainingJob; objects of other kinds are for the cluster.

    Raises:
        UserError: For the first mistake; the caller adds the file.
    """
    objects = [item for document in parse_documents(text) for item in _items(document)]
    if not objects:
        raise UserError(f"is empty; write a TrainingJob, which begins with {_HEAD}")
    data = objects[0] if len(objects) == 1 else _only_job(objects)
    if not isinstance(data, dict):
        raise UserError(f"is not a TrainingJob; begin with {_HEAD}")
    if data.get("kind") == "Network":
        raise UserError("is a network; give it to --network, and a TrainingJob here", field="kind", value="Network")
    return read_training_job(data, ignore_unknown)


def read_training_job(data: dict[str, Any], ignore_unknown: bool = False) -> TrainingJob:
    """Return a TrainingJob from plain data.

    Args:
        data: The object.
        ignore_unknown: True if the object was checked before, by an API server or a launcher that may be of a newer
            version. An unknown field is an error otherwise.

    Raises:
        UserError: For the first mistake.
    """
    metadata = data.get("metadata")
    if isinstance(metadata, dict) and "generateName" in metadata and "name" not in metadata:
        raise UserError(
            "makes up a name on a cluster only; write metadata.name, which also works there",
            field="metadata.generateName",
            value=_show(metadata["generateName"]),
        )
    try:
        return TrainingJob.model_validate(data, extra="ignore" if ignore_unknown else None)
    except ValidationError as error:
        raise to_user_error(_first_to_tell(error.errors(include_url=False))) from None


def _load(path: str | Path, ignore_unknown: bool = False) -> TrainingJob:
    text = read_text(path, "a TrainingJob")
    try:
        return parse_training_job(text, ignore_unknown)
    except UserError as error:
        raise error.in_file(str(path)) from None


def _items(document: Any) -> list[Any]:
    """Return the items of a `List`, which `kubectl get -o yaml` writes, or the document itself."""
    if isinstance(document, dict) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        return list(document["items"])
    return [document]


def _only_job(objects: Sequence[Any]) -> Any:
    """Return the one TrainingJob among several objects."""
    jobs = [item for item in objects if isinstance(item, dict) and item.get("kind") == KIND]
    if len(jobs) != 1:
        count = len(jobs) or "no"
        raise UserError(
            f"holds {count} TrainingJobs in {len(objects)} objects; keep exactly one TrainingJob in the file"
        )
    return jobs[0]


def _first_to_tell(errors: Sequence[ErrorDetails]) -> ErrorDetails:
    """Return the first finding; for a missing field, an unknown one beside it: it may be a misspelling."""
    first = errors[0]
    if first["type"] != "missing":
        return first
    beside = (
        error for error in errors if error["type"] == "extra_forbidden" and error["loc"][:-1] == first["loc"][:-1]
    )
    return next(beside, first)


def to_user_error(error: ErrorDetails) -> UserError:
    """Convert one of pydantic's findings: the field as YAML spells it, the value, and what to do."""
    context = error.get("ctx", {})
    location, value = (*error["loc"], *context.get("field", ())), context.get("value", error["input"])
    remedy = _remedy(error, location)
    shown = "" if error["type"] == "missing" or isinstance(value, dict) else _show(value)
    return UserError(remedy, field=_path(location), value=shown)


def _remedy(error: ErrorDetails, location: Sequence[int | str]) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            description = _description(location)
            return f"is missing; write it: {description.rstrip('.')}" if description else "is missing; write it"
        case "extra_forbidden":
            return _unknown_field(location)
        case "literal_error":
            return f"must be {context['expected']}"
        case "greater_than":
            return f"must be more than {_number(context['gt'])}"
        case "greater_than_equal":
            return f"must be at least {_number(context['ge'])}"
        case "less_than":
            return f"must be less than {_number(context['lt'])}"
        case "less_than_equal":
            return f"must be at most {_number(context['le'])}"
        case "int_type" | "int_from_float":
            return "must be a whole number, without quotes"
        case "float_type":
            return f"must be a number{_without_quotes(error['input'])}"
        case "finite_number":
            return "must be a finite number"
        case "invalid_key":
            return "must have text for a name; put it in quotes"
        case "bool_type":
            return "must be true or false, without quotes"
        case "string_type":
            return "must be text; put it in quotes"
        case "tuple_type" | "list_type":
            return "must be a list, such as [a, b]"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "must hold fields of its own, indented beneath it"
        case "too_short":
            return f"must have at least {context['min_length']} entries"
        case "too_long":
            return f"must have at most {context['max_length']} entries"
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have at most {context['max_length']} characters"
        case "string_pattern_mismatch":
            return "must be lower-case letters, digits and hyphens; begin with a letter, end with a letter or digit"
        case "value_error":
            return str(context["error"])
        case _:
            return error["msg"]


def _number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def _without_quotes(value: Any) -> str:
    """Return how to write a number that stands in quotes."""
    try:
        return f"; write {float(value):.12f}".rstrip("0")
    except (TypeError, ValueError):
        return ""


def _unknown_field(location: Sequence[int | str]) -> str:
    model = _model_at(location[:-1])
    known = [each.alias or name for name, each in model.model_fields.items()] if model else []
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    if near:
        return f"is not a field here; did you mean {near[0]}?"
    return f"is not a field here; choose from {', '.join(known)}"


def _description(location: Sequence[int | str]) -> str:
    model = _model_at(location[:-1])
    for name, each in model.model_fields.items() if model else ():
        if (each.alias or name) == location[-1]:
            return each.description or ""
    return ""


def _model_at(location: Sequence[int | str]) -> type[BaseModel] | None:
    """Return the model that a path of aliases leads to from the TrainingJob."""
    model: type[BaseModel] = TrainingJob
    for step in location:
        annotation = next(
            (each.annotation for name, each in model.model_fields.items() if (each.alias or name) == step), None
        )
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        inner = next(
            (candidate for candidate in candidates if isinstance(candidate, type) and issubclass(candidate, BaseModel)),
            None,
        )
        if inner is None:
            return None
        model = inner
    return model


def _path(location: Sequence[int | str]) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


def _show(value: Any) -> str:
    """Return a value as YAML has it: true, not True."""
    if isinstance(value, list):
        return f"[{', '.join('null' if item is None else _show(item) for item in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else " ".join(str(value).split())
