"""Looks rows up by name, and imports what makes a scheme."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Generic, TypeVar

from trimtab_api.catalogue.row import Row
from trimtab_api.errors import UserError

AnyRow = TypeVar("AnyRow", bound=Row)


class Registry(Generic[AnyRow]):
    """The rows of one axis of a plan."""

    def __init__(self, axis: str, rows: tuple[AnyRow, ...]) -> None:
        """``axis`` is what errors call it. The first of the rows is the default."""
        self.axis = axis
        self.rows = rows
        self._by_name = {row.name: row for row in rows}

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every row; the default first."""
        return tuple(self._by_name)

    def find(self, name: str) -> AnyRow:
        """The row of this name. Raises `UserError` for a name that is not known."""
        try:
            return self._by_name[name]
        except KeyError:
            raise UserError(f"not known; choose from {', '.join(self.names)}", field=self.axis, value=name) from None

    def factory(self, name: str) -> Any:
        """What makes the scheme of this name, imported now. Raises `UserError` for a name that is not known."""
        module, _, attribute = self.find(name).factory.partition(":")
        return getattr(import_module(module), attribute)
