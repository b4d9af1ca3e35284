"""`trimtab top`: the TrainingJobs of a cluster, as they are now and as they change."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimtab_api.command_line import path

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod, RenderableType

    from trimtab.cluster.job_row import JobRow
    from trimtab.cluster.jobs import Jobs

#: Seconds between two pictures on a terminal: the time since progress passes, whatever else happens.
_REFRESH_SECONDS = 1.0
#: Seconds between two tables where there is no terminal, while something changes.
_LINE_SECONDS = 5.0
_COLUMNS = ("JOB", "STATE", "STEP", "LOSS", "STEP TIME", "PLAN", "GAIN", "PROGRESS", "MESSAGE")
_NUMBERS = ("STEP", "LOSS", "STEP TIME", "GAIN", "PROGRESS")
_COLORS = {"Running": "green", "Failed": "red", "Restarting": "yellow", "Pending": "yellow", "Succeeded": "cyan"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `trimtab top`."""
    parser.add_argument("--namespace", "-n", metavar="NAME", help="of the jobs; else that of the context")
    parser.add_argument("--all-namespaces", "-A", action="store_true", help="jobs of all namespaces")
    parser.add_argument("--kubeconfig", type=path("--kubeconfig"), metavar="FILE", help="else KUBECONFIG, or the pod's")
    parser.add_argument("--once", action="store_true", help="print the jobs as they are now, and end")
    parser.add_argument("--json", action="store_true", help="a JSON object a line: one for each change of a job")


def run(args: argparse.Namespace) -> int:
    """Show the jobs until a signal ends it; returns 0."""
    from rich.console import Console

    from trimtab.cluster.jobs import Jobs

    jobs = Jobs(args.kubeconfig, args.namespace, everywhere=args.all_namespaces)
    jobs.refresh()
    console = Console()
    if args.once:
        for line in _as_json(jobs.rows()) if args.json else table(jobs.rows(), time.time()):
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

    from trimtab.launch.interrupts import heed, interruptible

    # Else a signal would end the process before the terminal is as it was.
    with interruptible(), Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            heed()
            changed.clear()
            live.update(_picture(jobs), refresh=True)
            changed.wait(_REFRESH_SECONDS)


def _print_tables(jobs: Jobs, changed: threading.Event) -> None:
    while True:
        changed.clear()
        print("\n".join((*table(jobs.rows(), time.time()), *filter(None, [jobs.trouble]))), flush=True)
        changed.wait()
        time.sleep(_LINE_SECONDS)


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
            print(f"trimtab: {jobs.trouble}", file=sys.stderr, flush=True)
        told = rows
        changed.wait()


def _as_json(rows: Sequence[JobRow]) -> list[str]:
    now = time.time()
    return [json.dumps(row.to_json(now)) for row in rows]


def cells(row: JobRow, now: float, *, with_namespace: bool) -> list[str]:
    """What stands in each column of a job."""
    from trimtab_api.units import format_duration

    since = row.since_progress(now)
    return [
        f"{row.namespace}/{row.name}" if with_namespace else row.name,
        row.state,
        "" if row.step is None else str(row.step),
        "" if row.loss is None else f"{row.loss:.4g}",
        row.step_time or "",
        row.plan or "",
        "" if row.gain is None else f"{row.gain:.2f}",
        "" if since is None else f"{format_duration(round(since))} ago",
        row.message,
    ]


def table(rows: Sequence[JobRow], now: float) -> list[str]:
    """Plain lines: a head, and one for each job."""
    several = len({row.namespace for row in rows}) > 1
    lines = [list(_COLUMNS), *(cells(row, now, with_namespace=several) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return shown if rows else ["no TrainingJobs"]


def _picture(jobs: Jobs) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows, now = jobs.rows(), time.time()
    where = "all namespaces" if jobs.namespace is None else f"namespace {jobs.namespace}"
    running = sum(row.state == "Running" for row in rows)
    said = f" of {where}: {len(rows)}, {running} running  {time.strftime('%X')}"
    head = Text.assemble(("TrainingJobs", "bold"), said)
    picture = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=True)
    for column in _COLUMNS:
        justify: JustifyMethod = "right" if column in _NUMBERS else "left"
        ratio = 1 if column == _COLUMNS[-1] else None  # the message takes what the others leave
        picture.add_column(column, no_wrap=True, overflow="ellipsis", ratio=ratio, justify=justify)
    for row in rows:
        name, state, *others = cells(row, now, with_namespace=jobs.namespace is None)
        picture.add_row(name, Text(state, style=_COLORS.get(state, "")), *map(Text, others))
    return Group(head, Text(jobs.trouble, style="red"), picture)
