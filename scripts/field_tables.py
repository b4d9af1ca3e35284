"""The tables of fields in `docs/reference/run-directory.md`, from the types of its records."""

from __future__ import annotations

import ast
import re

from generated import ROOT, cell


def field_table(path: str, name: str) -> str:
    """Return a table of the fields of a record, from the docstrings beneath them. ``?``: a field that may be null."""
    module = ast.parse((ROOT / path).read_text("utf-8"))
    record = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name)
    lines = ["| field | meaning |", "|---|---|"]
    for node, after in zip(record.body, [*record.body[1:], None], strict=True):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        meaning = " ".join(str(after.value.value).split()) if is_text else ""
        assert meaning, f"{path}: {name}.{node.target.id} has no docstring"
        mark = "?" if ast.unparse(node.annotation).endswith("| None") else ""
        lines.append(f"| `{_file_name(node)}`{mark} | {cell(meaning)} |")
    return "\n".join(lines).replace("``", "`") + "\n"


def _file_name(node: ast.AnnAssign) -> str:
    """Return the name of a field in its file."""
    if isinstance(node.value, ast.Call):
        for each in node.value.keywords:
            if each.arg == "name" and isinstance(each.value, ast.Constant):
                return str(each.value.value)
    assert isinstance(node.target, ast.Name)
    return node.target.id


def with_field_tables(page: str) -> str:
    """Return the page with each table between its marks replaced: ``<!-- fields: PATH NAME -->``."""

    def table(found: re.Match[str]) -> str:
        return f"{found[1]}\n{field_table(found[2], found[3])}\n{found[4]}"

    return re.sub(r"(<!-- fields: (\S+) (\w+) -->\n).*?(<!-- end -->)", table, page, flags=re.DOTALL)
