"""YAML as users write it, read as kubectl does and without surprises: no key twice, no endless depth or size."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable
from decimal import Decimal
from typing import Any

import yaml

from trimtab_api.errors import UserError

#: Lists and mappings in one another. A Kubernetes object needs some twenty.
MAX_DEPTH = 64
#: Values of a file, each alias counted as all that it stands for; long text counts once for each 100 characters.
MAX_VALUES = 20_000
_CHARACTERS_PER_VALUE = 100

_PREFIX = "tag:yaml.org,2002:"
_MERGE = f"{_PREFIX}merge"
#: How a tag calls the type of what an unquoted scalar means.
_TAGS = {bool: f"{_PREFIX}bool", int: f"{_PREFIX}int", float: f"{_PREFIX}float", type(None): f"{_PREFIX}null"}

Scalar = str | int | float | bool | None
#: Words as kubectl reads them where they stand unquoted: YAML 1.1 by go-yaml 2, converted to JSON. So ``Y`` is true,
#: ``1e-4`` is a number, ``010`` is 8, ``008`` is 8, ``12:30`` and ``2024-01-01`` are text, and ``1.0`` is 1.
_WORDS: dict[str, Scalar] = {
    **{word: True for text in ("yes", "true", "on") for word in (text, text.capitalize(), text.upper())},
    **{word: False for text in ("no", "false", "off") for word in (text, text.capitalize(), text.upper())},
    **dict.fromkeys(("y", "Y"), True),
    **dict.fromkeys(("n", "N"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_WHOLE = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_SEPARATOR = re.compile(r"(?<=[0-9])_(?=[0-9])")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
#: Characters of a number that can be a 64-bit integer, whatever its base.
_LONGEST_WHOLE = 68
#: From here on, JSON as Go writes it has an exponent, and an API server reads no integer.
_FIRST_EXPONENT = 1e21


def parse_yaml(text: str) -> Any:
    """Return plain data from YAML or JSON text.

    Raises:
        UserError: If the text is not valid; the error names the place, and the caller adds the file.
    """
    return _parsed(text, lambda loader: loader.get_single_data())


def parse_documents(text: str) -> list[Any]:
    """Return the plain data of each document of YAML text, without empty ones.

    Raises:
        UserError: If the text is not valid; the error names the place, and the caller adds the file.
    """

    def read(loader: _CarefulLoader) -> list[Any]:
        found = []
        while loader.check_data():  # type: ignore[no-untyped-call]
            found.append(loader.get_data())
        return [item for item in found if item is not None]

    result: list[Any] = _parsed(text, read)
    return result


def _parsed(text: str, read: Callable[[_CarefulLoader], Any]) -> Any:
    try:
        return read(_CarefulLoader(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"is not valid YAML{place}: {error.problem or error.context}; mend it there") from None
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise UserError(f"is not valid YAML: {said}; mend that, or put it in quotes") from None


class _CarefulLoader(yaml.SafeLoader):
    """A loader that reads plain scalars as kubectl does, and refuses what YAML allows and nobody means."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._num_read = 0
        self._sizes: dict[int, int] = {}  # of nodes by id: what a node is worth, aliases expanded

    def scan_to_next_token(self) -> None:
        """Skip tabs where go-yaml does: between tokens and before comments, though not as indentation."""
        super().scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
            self.forward()
            super().scan_to_next_token()

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return the tag of a node that has none: an unquoted scalar is whatever kubectl reads."""
        if kind is yaml.ScalarNode and implicit[0]:
            return _MERGE if value == "<<" else _TAGS.get(type(read_plain(value)), self.DEFAULT_SCALAR_TAG)
        return str(super().resolve(kind, value, (False, False)))  # type: ignore[no-untyped-call]

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse depth while there is still a stack to say so with, a node that holds itself, and endless aliases."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent) and self._is_within(str(event.anchor)):
            raise yaml.composer.ComposerError(problem=f"{event.anchor} holds itself", problem_mark=mark)
        if self._depth >= MAX_DEPTH:
            problem = f"more than {MAX_DEPTH} lists or mappings are in one another"
            raise yaml.composer.ComposerError(problem=problem, problem_mark=mark)
        self._depth += 1
        before = self._num_read
        try:
            node = super().compose_node(parent, index)
        finally:
            self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            self._num_read += self._sizes[id(node)]
        else:
            self._num_read += 1
            if isinstance(node, yaml.ScalarNode):
                node.value = _joined(node)
                self._num_read += len(node.value) // _CHARACTERS_PER_VALUE
            self._sizes[id(node)] = self._num_read - before
        if self._num_read > MAX_VALUES:
            raise UserError(
                f"holds more than {MAX_VALUES} values, each alias counted as what it stands for; make it smaller"
            )
        return node

    def _is_within(self, anchor: str) -> bool:
        """Return whether the anchored node is still being read: a collection's end is known once it was read whole."""
        node = self.anchors.get(anchor)
        return isinstance(node, yaml.CollectionNode) and node.end_mark is None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a key written twice, of which YAML would silently keep the last, and one that kubectl renames."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            name = self.construct_object(key)
            if not isinstance(name, str | int) or isinstance(name, bool):
                raise _refusal(key, f"the key {key.value} is not read as text; put it in quotes")
            if str(name) in seen:
                problem = f"the key {key.value} is written twice"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
            seen.add(str(name))
        return super().construct_mapping(node, deep)

    def construct_scalar_of(self, node: yaml.ScalarNode) -> Scalar:
        """Return the value of a scalar with a tag of `_TAGS`, its own or an explicit one such as ``!!float``."""
        value = read_plain(node.value)
        if node.tag == _TAGS[float] and isinstance(value, int) and not isinstance(value, bool):
            return value
        if _TAGS.get(type(value)) != node.tag:
            raise _refusal(node, f"{node.value} is not of the type of its tag; remove {_short(node.tag)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise _refusal(node, f"{node.value} is not a number in JSON, which kubectl sends; write a finite number")
        return value

    def refuse_tag(self, node: yaml.Node) -> None:
        """Refuse a tag that plain data has no need of, such as ``!!set`` or one of an application's own."""
        raise _refusal(node, f"the tag {_short(node.tag)} is not read; remove it")


def _joined(node: yaml.ScalarNode) -> str:
    """Return a scalar's text, each pair of surrogates as the character that JSON writes by it, such as an emoji."""
    text: str = node.value
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise _refusal(node, "the text holds half of a character that \\u writes in two parts; write both") from None


def _short(tag: str) -> str:
    return tag.replace(_PREFIX, "!!")


def _refusal(node: yaml.Node, why: str) -> UserError:
    return UserError(f"at line {node.start_mark.line + 1}, column {node.start_mark.column + 1}: {why}")


_CarefulLoader.yaml_constructors = {
    **{tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (f"{_PREFIX}{kind}" for kind in ("str", "seq", "map"))},
    **dict.fromkeys(_TAGS.values(), _CarefulLoader.construct_scalar_of),
    _MERGE: yaml.SafeLoader.construct_yaml_str,
    None: _CarefulLoader.refuse_tag,
}


def read_plain(text: str) -> Scalar:
    """Return the value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-.":
        return text
    digits = _SEPARATOR.sub("", text) if text[0] == "." else text.replace("_", "")
    whole = _read_whole(digits)
    if whole is not None and -(2**63) <= whole < 2**63:
        return whole
    number = float(whole or digits) if whole or _FLOAT.fullmatch(digits) else math.inf
    return _as_json(number) if math.isfinite(number) else text


def _as_json(number: float) -> int | float:
    """Convert a number as JSON has it: without a fraction it is a whole number, of the fewest digits that mean it."""
    return int(Decimal(repr(number))) if number.is_integer() and abs(number) < _FIRST_EXPONENT else number


def _read_whole(digits: str) -> int | None:
    """Parse an integer of 64 bits in base 2, 8, 10 or 16, as its prefix says; None for what is none."""
    found = _WHOLE.fullmatch(digits) if len(digits) <= _LONGEST_WHOLE else None
    if found is None:
        return None
    sign, *by_base = found.groups()
    value = next(int(each, base) for each, base in zip(by_base, _BASES, strict=True) if each is not None)
    value = -value if sign == "-" else value
    return value if -(2**63) <= value < (2**63 if sign else 2**64) else None
