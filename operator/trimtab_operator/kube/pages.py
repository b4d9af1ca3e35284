"""A decoder of pages of a collection, one object at a time: a page of large objects is never in memory whole.

Decoded JSON takes up to twenty-five times its bytes: an empty list is two bytes of text, and 56 bytes of Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from trimtab_operator.kube.resources import Object

#: Objects in one page. An object has at most 1.5 MB (etcd's limit), so the text of a page has at most 38 MB.
PAGE_SIZE = 25

_DECODER = json.JSONDecoder()


def decode_page(text: str, trim: Callable[[Object], None]) -> Object:
    """Decode a list answer, and apply ``trim`` to each item, in place, before the next item is decoded.

    Raises:
        ValueError: if the text is no JSON object.
    """
    cursor, page = _Cursor(text), {}
    cursor.expect("{")
    while not cursor.takes("}"):
        name = cursor.value()
        cursor.expect(":")
        if name == "items" and cursor.takes("["):
            page[name] = list(_items(cursor, trim))
        else:
            page[name] = cursor.value()
        cursor.takes(",")
    return page


def _items(cursor: _Cursor, trim: Callable[[Object], None]) -> Iterator[Object]:
    while not cursor.takes("]"):
        item = cursor.value()
        trim(item)
        yield item
        cursor.takes(",")


class _Cursor:
    """A place in JSON text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def takes(self, symbol: str) -> bool:
        """Pass the symbol if it comes next; return whether it did."""
        self._skip_blanks()
        found = self._text.startswith(symbol, self._at)
        self._at += found
        return found

    def expect(self, symbol: str) -> None:
        """Pass the symbol, which must come next."""
        if not self.takes(symbol):
            raise ValueError(f"character {self._at} of the answer is not {symbol!r}")

    def value(self) -> Any:
        """Decode the value that comes next."""
        self._skip_blanks()
        value, self._at = _DECODER.raw_decode(self._text, self._at)
        return value

    def _skip_blanks(self) -> None:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
