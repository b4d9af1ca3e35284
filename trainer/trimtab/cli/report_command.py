"""`trimtab report`: summary, report and table of a comparison, of one run, or of several, from their files."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from trimtab_api.cli import path
from trimtab_api.errors import UserError

from trimtab.launch.processes.interrupts import interruptible
from trimtab.report.comparison import Comparison, read_comparison, side_by_side
from trimtab.report.table import Cell, headings, judge, notes, rows

#: Columns of the table where there is no terminal to ask.
WIDTH = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab report`."""
    parser.add_argument(
        "directories",
        type=path("DIRECTORY"),
        metavar="DIRECTORY",
        nargs="+",
        help="what `trimtab compare --out` or `trimtab run --out` named; several runs are set side by side",
    )
    parser.add_argument(
        "--out", type=path("--out"), metavar="DIR", help="where it goes; else into the comparison's or run's directory"
    )


def run(args: argparse.Namespace) -> int:
    """Rebuild summary.json and report.html; return 0."""
    first, *others = args.directories
    if others and args.out is None:
        raise UserError("is missing; say where the report of several runs goes", field="--out")
    with interruptible():  # else one of its files might end in the middle
        if others:
            _write(side_by_side(args.directories, args.out))
        else:
            found = read_comparison(first)
            _write(found if args.out is None else replace(found, directory=args.out))
    return 0


def report(directory: Path) -> None:
    """Write summary.json and report.html into a comparison's directory, or a run's, and print the table."""
    _write(read_comparison(directory))


def _write(comparison: Comparison) -> None:
    from trimtab.report.page import render_page

    directory = comparison.directory
    summaries = {name: summary.to_json() for name, summary in comparison.summaries.items()}
    page = render_page(comparison)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "summary.json").write_text(json.dumps(summaries, indent=2) + "\n")
        (directory / "report.html").write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror})", file=str(error.filename)) from None
    console = Console()
    print_table(comparison, console if console.is_terminal else Console(width=WIDTH))
    print(f"report: {directory / 'report.html'}")


def print_table(comparison: Comparison, console: Console) -> None:
    """Print the table, each figure with its ratio to dense's."""
    table = Table(header_style="bold", pad_edge=False, box=None, padding=(0, 3, 0, 0))
    plan, *others = headings(comparison.target)
    table.add_column(plan, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", max_width=13)
    for row in rows(comparison.summaries, comparison.target):
        table.add_row(*(Text.assemble(cell.text, *_beneath(cell)) for cell in row))
    console.print()
    console.print(table)
    if verdict := judge(comparison.summaries):
        console.print(verdict, highlight=False, soft_wrap=True)
    for note in notes(comparison.summaries):
        console.print(Text(note, style="dim"), soft_wrap=True)


def _beneath(cell: Cell) -> list[tuple[str, str]]:
    return [(f"\n{cell.against_dense}", "dim")] if cell.against_dense else []
