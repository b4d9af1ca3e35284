"""Keyword arguments that have a new name: the old one works for one release, with a warning that names the new one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def renamed_arguments(**new_names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Accept the old names of a function's keyword arguments.

    Args:
        new_names: The new name of each argument, by its old name.

    Returns:
        A decorator. The function warns (`FutureWarning`) when it is called with an old name, and raises `TypeError`
        when it is called with both names of one argument.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        name = function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            for old in new_names.keys() & kwargs:
                new = new_names[old]
                if new in kwargs:
                    raise TypeError(f"{name}() was given {new} and {old}, which is the old name of {new}")
                text = f"{name}(): {old}= is now {new}=; the next release no longer takes {old}="
                warnings.warn(text, FutureWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


def renamed_fields(cls: type, new_names: Mapping[str, str]) -> None:
    """Accept the old names of a dataclass's fields where it is made, as `renamed_arguments` does.

    Args:
        cls: The dataclass.
        new_names: The new name of each field, by its old name.
    """
    cls.__init__ = renamed_arguments(**new_names)(cls.__init__)  # type: ignore[misc]
