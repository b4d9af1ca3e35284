"""`trimtab top`: the TrainingJobs of a cluster, as they are now and as they change."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimtab_api.cli import path
from trimtab_api.errors import UserError

from trimtab.process.messages import LOGGER

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, RenderableType

    from trimtab.k8s.job_row import JobRow
    from trimtab.k8s.jobs import Jobs

#: Seconds between two pictures on a terminal: the time since progress passes, whatever else happens.
_REFRESH_SECONDS = 1.0
#: Seconds between two tables where there is no terminal, while something changes.
_LINE_SECONDS = 5.0
_COLORS = {"Running": "green", "Failed": "red", "Restarting": "yellow", "Pending": "yellow", "Succeeded": "cyan"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab top`."""
    parser.add_argument("job", nargs="?", metavar="JOB", help="that job alone, and why it has its plan; else all")
    parser.add_argument("--namespace", "-n", metavar="NAME", help="of the jobs; else that of the context")
    parser.add_argument("--all-namespaces", "-A", action="store_true", help="jobs of all namespaces")
    parser.add_argument("--kubeconfig", type=path("--kubeconfig"), metavar="FILE", help="else KUBECONFIG, or the pod's")
    parser.add_argument("--once", action="store_true", help="print the jobs as they are now, and end")
    parser.add_argument("--json", action="store_true", help="a JSON object a line: one for each change of a job")


def run(args: argparse.Namespace) -> int:
    """Show the jobs until a signal ends it; returns 0."""
    from rich.console import Console

    from trimtab.k8s.jobs import Jobs

    jobs = Jobs(args.kubeconfig, args.namespace, everywhere=args.all_namespaces, name=args.job)
    jobs.refresh()
    if args.job is not None and not jobs.rows():
        where = "any namespace" if jobs.namespace is None else f"namespace {jobs.namespace}"
        raise UserError(f"no TrainingJob in {where} has this name; see trimtab top -A", field="JOB", value=args.job)
    console = Console()
    if args.once:
        for line in _as_json(jobs.rows()) if args.json else _plain(jobs):
            print(line)
        return 0
    changed = threading.Event()
    with jobs.watched(changed.set):
        if args.json:
            _print_json(jobs, changed)
        elif console.is_terminal and not console.is_dumb_terminal:
            _show(jobs, changed, console)
        else:
            _print_tables(jobs, changed)
    return 0


def _show(jobs: Jobs, changed: threading.Event, console: Console) -> None:
    from rich.live import Live

    from trimtab.launch.processes.interrupts import heed, interruptible

    # Else a signal would end the process before the terminal is as it was.
    with interruptible(), Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            heed()
            changed.clear()
            live.update(_picture(jobs, console), refresh=True)
            changed.wait(_REFRESH_SECONDS)


def _print_tables(jobs: Jobs, changed: threading.Event) -> None:
    while True:
        changed.clear()
        print("\n".join((*_plain(jobs), *filter(None, [jobs.trouble]))), flush=True)
        changed.wait()
        time.sleep(_LINE_SECONDS)


def _plain(jobs: Jobs) -> list[str]:
    from trimtab.k8s.job_table import details, lines

    rows = jobs.rows()
    of_one = details(rows[0]) if jobs.name is not None and len(rows) == 1 else []
    return [*lines(rows, time.time()), *(f"{name:10}{text}" for name, text in of_one)]


def _print_json(jobs: Jobs, changed: threading.Event) -> None:
    told: dict[tuple[str, str], JobRow] = {}
    while True:
        changed.clear()
        rows = {(row.namespace, row.name): row for row in jobs.rows()}
        for line in _as_json([row for at, row in rows.items() if told.get(at) != row]):
            print(line, flush=True)
        for namespace, name in told.keys() - rows.keys():
            print(json.dumps({"namespace": namespace, "name": name, "state": "Deleted"}), flush=True)
        if jobs.trouble:
            LOGGER.warning(jobs.trouble)
        told = rows
        changed.wait()


def _as_json(rows: Sequence[JobRow]) -> list[str]:
    now = time.time()
    return [json.dumps(row.to_json(now)) for row in rows]


def _picture(jobs: Jobs, console: Console) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from trimtab.k8s import job_table

    rows, now = jobs.rows(), time.time()
    where = "all namespaces" if jobs.namespace is None else f"namespace {jobs.namespace}"
    running = sum(row.state == "Running" for row in rows)
    said = f" of {where}: {len(rows)}, {running} running  {time.strftime('%X')}"
    above = [Text.assemble(("TrainingJobs", "bold"), said, no_wrap=True, overflow="ellipsis")]
    if jobs.trouble:
        above.append(Text(jobs.trouble, style="red", no_wrap=True, overflow="ellipsis"))
    most = max(1, console.height - len(above) - 3)
    shown = rows if len(rows) <= most + 1 else job_table.most_urgent(rows, most)
    filled = [job_table.cells(row, now, with_namespace=jobs.namespace is None) for row in shown]
    widths = job_table.fitted_widths(filled, console.width)
    picture = Table(box=None, padding=(0, job_table.GAP, 0, 0), pad_edge=False, header_style="dim")
    for name, width in widths.items():
        justify: JustifyMethod = "right" if name in job_table.NUMBERS else "left"
        picture.add_column(name, no_wrap=True, overflow="ellipsis", width=width, justify=justify)
    for row in filled:
        texts = dict(zip(job_table.COLUMNS, map(Text, row), strict=True))
        texts["STATE"].stylize(_COLORS.get(texts["STATE"].plain, ""))
        picture.add_row(*(texts[name] for name in widths))
    left = len(rows) - len(shown)
    beneath: list[RenderableType] = (
        [Text(f"and {left} more: a higher window shows them, or --once", style="dim")] if left else []
    )
    if jobs.name is not None and len(rows) == 1:
        beneath.append(Text())
        grid = Table.grid(padding=(0, 2, 0, 0))
        for name, text in job_table.details(rows[0]):
            grid.add_row(Text(name, style="dim"), Text(text))
        beneath.append(grid)
    return Group(*above, Text(), picture, *beneath)
