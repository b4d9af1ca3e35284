"""The building blocks of a TrainingJob's types: strict models, checked fields, and errors with their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import PydanticCustomError

from trimtab_api.errors import UserError
from trimtab_api.trainingjob.rule import Rule
from trimtab_api.trainingjob.rules import RULES

#: In the schema of a list that holds each item once.
_IS_SET = {"x-kubernetes-list-type": "set"}
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


def spec_of(normalize: Callable[[str], str]) -> AfterValidator:
    """Return a validator of a scheme with its options, which gives the normal form that ``normalize`` returns."""

    def check(text: str) -> str:
        try:
            return normalize(text)
        except UserError as error:
            raise ValueError(error.remedy) from None

    return AfterValidator(check)


def enum(known: tuple[str, ...]) -> Any:
    """Return a field whose schema lists the known names."""
    return Field(json_schema_extra={"enum": list(known)})


def invalid_value(field: Location, value: Any, remedy: str) -> PydanticCustomError:
    """Return the error of one field inside a model, which only its neighbours show to be wrong."""
    return PydanticCustomError("wrong_field", "{remedy}", {"remedy": remedy, "field": field, "value": value})


def obeys(at: str) -> AfterValidator:
    """Return a validator of the value at a place, by the rules there."""
    rules = [rule for rule in RULES if rule.at == at and rule.wrong is not None]

    def check(value: Any) -> Any:
        for rule in rules:
            if rule.wrong is not None and (verdict := rule.wrong(value)):
                if rule.hides_value:
                    raise invalid_value((), None, rule.said(verdict))
                raise ValueError(rule.said(verdict))
        return value

    return AfterValidator(check)


class Ruled(ApiModel):
    """A model that obeys the rules at its place in a TrainingJob, and whose sets hold each item once."""

    at: ClassVar[str]
    _rules: ClassVar[tuple[Rule, ...]]
    _sets: ClassVar[tuple[tuple[str, str], ...]]
    """Name and alias of each list that holds an item once."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Look up once what each of its values is held to."""
        cls._rules = tuple(rule for rule in RULES if rule.at == cls.at)
        extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        sets = (name for name, extra in extras.items() if isinstance(extra, dict) and _IS_SET.items() <= extra.items())
        cls._sets = tuple((name, to_camel(name)) for name in sets)

    @model_validator(mode="after")
    def _obey(self) -> Self:
        for name, alias in self._sets:
            _check_each_once(alias, getattr(self, name) or ())
        for rule in self._rules:
            self._obey_one(rule)
        return self

    def _obey_one(self, rule: Rule) -> None:
        field = rule.field.removeprefix(".")
        if rule.wrong is not None and (verdict := rule.wrong(self)):
            raise invalid_value((field,), _plain(getattr(self, _attribute(field))), rule.said(verdict))
        if rule.wrong_item is not None:
            for index, item in enumerate(getattr(self, _attribute(field)) or ()):
                if verdict := rule.wrong_item(self, item):
                    raise invalid_value((field, index), item, rule.said(verdict))


#: The attribute of a field's alias.
_attribute = cache(to_snake)


def _plain(value: Any) -> Any:
    """Return a value as a file has it."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    return list(value) if isinstance(value, tuple) else value


def _check_each_once(field: str, values: tuple[Any, ...]) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise invalid_value((field, index), value, "is there twice; remove one")
