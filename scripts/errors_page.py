"""`docs/reference/errors.md`, from the errors that the code raises."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from generated import NOTE, ROOT, cell

#: Errors of these packages reach a person through a training script.
_RAISED_IN_TRAINING = ("session", "engine", "ddp", "checkpoint", "data")
_LONGEST_PROBLEM = 40


def errors() -> str:
    """Return the page of the errors that a training script can raise."""
    rows: dict[tuple[str, str], None] = {}
    for package in _RAISED_IN_TRAINING:
        for path in sorted((ROOT / "trainer/trimtab" / package).rglob("*.py")):
            rows |= dict.fromkeys(_user_errors(ast.parse(path.read_text("utf-8"))))
    lines = ["# Errors", "", NOTE, ""]
    lines += [
        "A `trimtab_api.errors.UserError` is one line: file, field, value and remedy, as far as known. `trimtab` prints"
    ]
    lines += [
        "it and exits with code 2. In a script it is an exception. `…` stands for a name, a value or more text.",
        "",
    ]
    lines += ["", "| field | problem |", "|---|---|"]
    for field in sorted({field for field, _ in rows}):
        problems = sorted(problem for of_field, problem in rows if of_field == field)
        lines.append(f"| {field} | {'<br>'.join(problems)} |")
    return "\n".join(lines) + "\n"


def _user_errors(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield field and problem of the errors that a module raises with texts of its own."""
    for call in ast.walk(module):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "UserError"):
            continue
        field = next((_text(each.value) for each in call.keywords if each.arg == "field"), "")
        text = _text(call.args[0]) if call.args else ""
        problem = text.partition(";")[0].partition(". ")[0]
        if field.strip("… ") and problem.strip("… ") and len(problem) > 12:
            yield f"`{field}`", cell(_shortened(problem))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) if isinstance(each, ast.Constant) else "…" for each in node.values)
    return "…"


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_PROBLEM:
        return text
    return text[:_LONGEST_PROBLEM].rsplit(" ", 1)[0].rstrip(",:") + " …"
