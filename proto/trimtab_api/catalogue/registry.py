"""The registry of an axis of a plan: its built-in schemes, and those that other packages have added."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from trimtab_api.catalogue.options import Option, format_spec, parse_options, split_spec
from trimtab_api.catalogue.rows import Row
from trimtab_api.errors import UserError

R = TypeVar("R", bound=Row)

#: Packages add schemes by entry points of this group; each names a function that calls `Registry.add`.
ENTRY_POINTS = "trimtab.schemes"


class Registry(Generic[R]):
    """The schemes of one axis; the first is the default."""

    def __init__(self, name: str, *rows: R, common: tuple[Option, ...] = ()) -> None:
        """Register the rows of an axis.

        Args:
            name: The axis.
            rows: Its schemes, the default first.
            common: Options that may be written with each scheme. A scheme whose row has an option of the same name has
                another default for it.
        """
        self.name = name
        self._common = common
        self.built_in = tuple(row.name for row in rows)
        """Names of the schemes that every version of this program has: those that the CRD knows."""
        self._rows = {row.name: row for row in rows}
        self._found: dict[str, tuple[R, dict[str, Any], str]] = {}
        """The row, the values of the options and the normal form of each spec's text that was asked for."""

    @property
    def default(self) -> str:
        """The name of the default scheme."""
        return self.built_in[0]

    def add(self, row: R) -> None:
        """Register another scheme in this process; one of the same name is replaced."""
        self._rows[row.name] = row
        self._found.clear()

    def rows(self) -> tuple[R, ...]:
        """Return every scheme that is known."""
        load_added_schemes()
        return tuple(self._rows.values())

    def names(self) -> tuple[str, ...]:
        """Return the names of all schemes."""
        return tuple(row.name for row in self.rows())

    def __getitem__(self, text: str) -> R:
        """Return the row of a spec's text, whatever its options.

        Raises:
            UserError: If no scheme has that name.
        """
        if found := self._found.get(text):
            return found[0]
        name = text.partition(":")[0]
        if name not in self._rows:
            load_added_schemes()
        if name not in self._rows:
            raise UserError(f"not known; choose from {', '.join(self._rows)}", field=self.name, value=text)
        return self._rows[name]

    def options(self, text: str) -> dict[str, Any]:
        """Return the value of every option.

        Raises:
            UserError: If the spec is wrong.
        """
        return self._find(text)[1]

    def normalize(self, text: str) -> str:
        """Return the normal form of a spec's text.

        Raises:
            UserError: If the spec is wrong.
        """
        return self._find(text)[2]

    def with_options(self, text: str, **changed: Any) -> str:
        """Return the normal form of a spec with other values of some options.

        Raises:
            UserError: If the spec is wrong.
        """
        row, values = self[text], self.options(text)
        return format_spec(row.name, {**values, **changed}, self.options_of(row))

    def create(self, text: str, *arguments: Any) -> Any:
        """Create the implementation of a spec, called with ``arguments`` and its options.

        Raises:
            UserError: If the spec is wrong.
        """
        row, values = self[text], self.options(text)
        module, _, attribute = row.implementation.partition(":")
        common = {option.name for option in self._common}
        own = {option.name: values[option.name] for option in row.options if option.name not in common}
        return getattr(import_module(module), attribute)(*arguments, **row.arguments, **own)

    def _find(self, text: str) -> tuple[R, dict[str, Any], str]:
        if text not in self._found:
            row = self[text]
            try:
                name, options = split_spec(text)
                known = self.options_of(row)
                values = parse_options(options, known)
            except ValueError as error:
                raise UserError(str(error), field=self.name, value=text) from None
            self._found[text] = row, values, format_spec(name, values, known)
        return self._found[text]

    def options_of(self, row: R) -> tuple[Option, ...]:
        """Return a row's own options, and those that all rows of the axis take."""
        own = {option.name for option in row.options}
        return (*row.options, *(option for option in self._common if option.name not in own))


@cache
def load_added_schemes() -> None:
    """Let every installed package that adds schemes add them, once in a process.

    Raises:
        UserError: If a package fails to.
    """
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()()
        except Exception as error:
            raise UserError(
                f"adds no scheme, but fails: {type(error).__name__}: {error}; mend or uninstall it",
                field=f"entry point {entry.name} of {ENTRY_POINTS}",
                value=entry.value,
            ) from error
