"""The building blocks of a TrainingJob's types: strict models, checked fields, and errors with their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from trimtab_api.catalogue import Registry
from trimtab_api.errors import UserError

#: Path of a field: names, and numbers in lists.
Location = tuple[str | int, ...]


class ApiModel(BaseModel):
    """A model that refuses unknown fields, converts no number or string to the other, and never changes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_default=True,
        allow_inf_nan=False,
    )


def one_of(known: Callable[[], Iterable[str]]) -> AfterValidator:
    """Return a validator of strings that are one of the known names."""

    def check(name: str) -> str:
        names = tuple(known())
        if name not in names:
            raise ValueError(f"not known; choose from {', '.join(names)}")
        return name

    return AfterValidator(check)


def spec_of(axis: Registry[Any]) -> AfterValidator:
    """Return a validator of a scheme of the axis with its options, which gives its normal form."""

    def check(text: str) -> str:
        try:
            return axis.normalize(text)
        except UserError as error:
            raise ValueError(error.remedy) from None

    return AfterValidator(check)


def enum(known: tuple[str, ...]) -> Any:
    """Return a field whose schema lists the known names."""
    return Field(json_schema_extra={"enum": list(known)})


def invalid_value(field: Location, value: Any, remedy: str) -> PydanticCustomError:
    """Return the error of one field inside a model, which only its neighbours show to be wrong."""
    return PydanticCustomError("wrong_field", "{remedy}", {"remedy": remedy, "field": field, "value": value})


def check_each_once(field: Location, values: tuple[Any, ...]) -> None:
    """Raise a pydantic error if a value occurs twice."""
    for index, value in enumerate(values):
        if value in values[:index]:
            raise invalid_value((*field, index), value, "is there twice; remove one")
