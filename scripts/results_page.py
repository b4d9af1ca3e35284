"""The page of the promises and their newest figures: docs/benchmarks/results.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from results import IMPORTED, Figure, Promise, with_unit

HEAD = """\
<!-- Generated from benchmarks/promises.toml and benchmarks/results by `make generate`; do not edit. -->
# Results

Each row shows a promise, its target and its newest figure. [Benchmarks](index.md) describes the method. Run a command
`NAME` as `python benchmarks NAME`, others as they stand. The files in `benchmarks/results` record commits.
"""
IMPORT_NOTE = "\\*: imported from earlier measurements. The spread may span machines of different speed."
COLUMNS = ("Promise", "Target", "Newest", "Spread", "Date", "Command")
BENCHMARKS = "python benchmarks "


def results_page(promises: Iterable[Promise], figures: Mapping[str, Figure]) -> str:
    """Return the Markdown page. ``figures``: the newest one of each promise."""
    promises = list(promises)
    lines = [HEAD, summary(promises, figures)]
    for area in dict.fromkeys(promise.area for promise in promises):
        lines += ["", f"## {area}", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        lines += [row(promise, figures.get(promise.id)) for promise in promises if promise.area == area]
    if any(figure.origin == IMPORTED for figure in figures.values()):
        lines += ["", IMPORT_NOTE]
    return "\n".join(lines) + "\n"


def summary(promises: Iterable[Promise], figures: Mapping[str, Figure]) -> str:
    """Return the numbers of promises that are met, missed and never measured."""
    promises = list(promises)
    states = [state(promise, figures.get(promise.id)) for promise in promises]
    counts = {name: states.count(name) for name in ("met", "missed", "no target", "never measured")}
    return f"{len(promises)} promises: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count) + "."


def state(promise: Promise, figure: Figure | None) -> str:
    """Return ``met``, ``missed``, ``no target`` or ``never measured``."""
    if figure is None:
        return "never measured"
    met = promise.is_met(figure.value)
    return "no target" if met is None else "met" if met else "missed"


def row(promise: Promise, figure: Figure | None) -> str:
    """Return the row of the table."""
    target = promise.target or "none"
    if figure is None:
        return _cells(promise.promise, target, "**never measured**", "", "", _command(promise.command))
    value = with_unit(figure.value, promise.unit)
    if state(promise, figure) == "missed":
        value = f"**{value} (missed)**"
    if figure.note:
        value += f"; {figure.note}"
    has_spread = figure.low is not None and figure.high is not None and figure.low < figure.high
    spread = f"{figure.low:.4g} to {figure.high:.4g}" if has_spread else ""
    date = figure.date[:10] + ("\\*" if figure.origin == IMPORTED else "")
    return _cells(promise.promise, target, value, spread, date, _command(figure.command))


def _command(command: str) -> str:
    return f"`{command.removeprefix(BENCHMARKS)}`"


def _cells(*texts: str) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"
