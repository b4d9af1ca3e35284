"""YAML as users write it, read without surprises: no key twice, no depth without end, every mistake with its place."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from trimtab_api.errors import UserError

#: Lists and mappings in one another. A Kubernetes object needs some twenty.
MAX_DEPTH = 64


def parse_yaml(text: str) -> Any:
    """Plain data from YAML or JSON text. Raises `UserError` that names the place; its file is left to the caller."""
    try:
        return yaml.load(text, Loader=_CarefulLoader)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"is not valid YAML{place}: {error.problem or error.context}; mend it there") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: what looks like a date or a number, and is none
        said = " ".join(str(error).split())
        raise UserError(f"is not valid YAML: {said}; mend that, or put it in quotes") from None


class _CarefulLoader(yaml.SafeLoader):
    """Refuses what YAML allows and nobody means."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse depth while there is still a stack to say so with, and a node that holds itself."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent) and self._is_within(str(event.anchor)):
            raise yaml.composer.ComposerError(problem=f"{event.anchor} holds itself", problem_mark=mark)
        if self._depth >= MAX_DEPTH:
            problem = f"more than {MAX_DEPTH} lists or mappings are in one another"
            raise yaml.composer.ComposerError(problem=problem, problem_mark=mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def _is_within(self, anchor: str) -> bool:
        """Whether the anchored node is still being read: a collection's end is known when all of it has been."""
        node = self.anchors.get(anchor)
        return isinstance(node, yaml.CollectionNode) and node.end_mark is None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a key written twice, of which YAML would silently keep the last."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value} is written twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)
