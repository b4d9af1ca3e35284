"""Whether a page's code spans name what is there."""

from __future__ import annotations

import ast


def defines(body: list[ast.stmt], name: str) -> bool:
    """Whether statements define a dotted name: a function, a class, a variable, or one of a class's own."""
    first, _, rest = name.partition(".")
    for statement in body:
        match statement:
            case ast.ClassDef(name=found) if found == first:
                return not rest or defines(statement.body, rest)
            case ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found) if found == first:
                return not rest
            case ast.AnnAssign(target=ast.Name(id=found)) if found == first:
                return not rest
            case ast.Assign(targets=targets) if first in _names(targets):
                return not rest
    return False


def _names(targets: list[ast.expr]) -> set[str]:
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
