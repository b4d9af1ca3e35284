"""`trimtab judge`: adaptive beside the best static plan in hindsight, over workloads and networks nobody tuned for."""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from trimtab_api.cli import path, whole_number

from trimtab.cli.compare_command import check_directory, compare
from trimtab.evaluation.judge import RANDOM_NETWORK_SEED
from trimtab.launch.processes.interrupts import EXIT_CODE, Interrupted, interruptible
from trimtab.plan.names import ADAPTIVE, DDP_HOOKS
from trimtab.process.messages import LOGGER
from trimtab.run_files.layout import RunDirectory

if TYPE_CHECKING:
    from trimtab_netmon.emulate import Network

    from trimtab.evaluation.judge.verdict import Cell, Measured
    from trimtab.evaluation.judge.workloads import Workload

#: Static plans that run for real in each cell, beside dense.
_NUM_FIRST = 3
#: Runs of each plan, and under `--quick`.
_TURNS, _QUICK_TURNS = 3, 1
#: A run that has trained so many times as long as adaptive's last run is given up: its plan is not the best one,
#: and the far network alone would take a third of the hours to say by how much.
_PATIENCE = 3.0
#: Workload and network of each cell of `--quick`: a change of networks, one that repeats, and one where dense wins.
_QUICK = (("digits", "C1"), ("gpt", "demo"), ("cnn", "fast"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab judge`."""
    parser.add_argument(
        "--out",
        type=path("--out"),
        required=True,
        help="directory for the runs, judge.json and judge.html; runs that finished there are kept",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="real runs in three cells, once each: a quarter of an hour on two cores, where the whole takes four hours",
    )
    parser.add_argument(
        "--turns",
        type=whole_number("--turns", 1, 100),
        help=f"runs of each plan, of which the median counts ({_TURNS}; {_QUICK_TURNS} with --quick); all cells have"
        " their first before any has its second",
    )
    parser.add_argument("--simulate", action="store_true", help="no real runs: seconds")
    parser.add_argument(
        "--record",
        action="store_true",
        help="record the curves that the simulator goes by anew, on loopback, and use them in place of those that ship",
    )
    parser.add_argument(
        "--seed",
        type=whole_number("--seed", 0, 2**31 - 1),
        default=RANDOM_NETWORK_SEED,
        help="of the random network (%(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Simulate, run, and say; 0 where all ran, 1 where a run failed, 130 on an interrupt."""
    directory: Path = args.out
    check_directory(directory)
    try:
        with interruptible(), RunDirectory(directory).held():
            failure = _judge(args, directory)
    except Interrupted:
        LOGGER.error("interrupted; nothing is left running. The same command goes on from here")
        return EXIT_CODE
    if failure:
        LOGGER.error(failure)
        LOGGER.error("once it is mended, the same command goes on from here")
        return 1
    return 0


def _judge(args: argparse.Namespace, directory: Path) -> str:
    from trimtab.evaluation.judge.networks import networks
    from trimtab.evaluation.judge.recorded import load
    from trimtab.evaluation.judge.simulation import LEFT_OUT, grid, simulate
    from trimtab.evaluation.judge.verdict import Cell
    from trimtab.evaluation.judge.workloads import WORKLOADS

    _say(f"trimtab: {LEFT_OUT}")
    cells: list[Cell] = []
    for workload in WORKLOADS:
        if args.record and (failure := _record(workload, directory)):
            return failure
        recorded = load(workload.name, directory / "curves" / f"{workload.name}.json")
        if unknown := [plan.name for plan in grid() if not recorded.knows(plan)]:
            _say(f"trimtab: {workload.name}: no curve speaks for {', '.join(unknown)}: left out of the simulation")
        for name, network in networks(args.seed).items():
            cells.append(Cell(workload.name, name, simulate(workload, network, recorded)))
            _say(f"{cells[-1].name}: adaptive {cells[-1].simulated_over_best:.2f}× the best static plan in simulation")
    _write(directory, cells)
    turns = args.turns or (_QUICK_TURNS if args.quick else _TURNS)
    real = [] if args.simulate else [c for c, each in enumerate(cells) if not args.quick or _is_quick(each)]
    for turn, index in product(range(1, turns + 1), real):
        cells[index], failure = _measure(cells[index], networks(args.seed)[cells[index].network], directory, turns=turn)
        if failure:
            return f"{cells[index].name}: {failure}"
        _write(directory, cells)
    _print(cells)
    print(f"page: {directory / 'judge.html'}")
    return ""


def _say(what: str) -> None:
    print(what, flush=True)


def _is_quick(cell: Cell) -> bool:
    return (cell.workload, cell.network) in _QUICK


def _measure(cell: Cell, network: Network, directory: Path, *, turns: int) -> tuple[Cell, str]:
    """Return the cell with its real runs' times, or why one failed; runs that finished in its directory are kept."""
    from dataclasses import replace

    from trimtab_netmon.emulate import write_network

    from trimtab.cli.preparation import choose_network
    from trimtab.evaluation.judge.arrival import arrival_of, evened
    from trimtab.evaluation.judge.verdict import Measured
    from trimtab.evaluation.judge.workloads import WORKLOADS
    from trimtab.report.comparison import finished_runs
    from trimtab.report.summary import target_of

    own = directory / cell.name.replace(" ", "-")
    own.mkdir(exist_ok=True)
    network_file = own / "network.yaml"
    network_file.write_text(write_network(network))
    job = next(each for each in WORKLOADS if each.name == cell.workload).job
    emulated = choose_network(network_file, False, job.spec.workers)
    if emulated is None:
        return cell, "nothing is emulated here, so real runs would say nothing; --simulate leaves them out"
    static = cell.simulated.first(_NUM_FIRST, besides=cell.dense)
    if cell.simulated.in_best_buffers not in (cell.dense, *static):
        static.append(cell.simulated.in_best_buffers)
    plans = [ADAPTIVE, "dense", *DDP_HOOKS, *static]
    target = target_of(job)
    assert target is not None, "of the workload"
    failure = compare(
        job,
        emulated,
        plans,
        own,
        target=target,
        ends_at_target=True,
        repeat=turns,
        resume=True,
        patience=_PATIENCE,
    )
    if failure:
        return cell, failure
    runs = {name: finished_runs(own, name, turns) for name in plans}
    arrivals = {name: [arrival_of(run, target) for run in of_plan] for name, of_plan in runs.items()}
    return replace(cell, measured=Measured(arrivals), evened=Measured(evened(runs, target))), ""


def _record(workload: Workload, directory: Path) -> str:
    """Run what the simulator is to know of a workload, on loopback, and keep its curves; why one run failed, if so."""
    from trimtab.evaluation.judge.recorded import PLANS, recorded_of
    from trimtab.plan.names import parse_plans
    from trimtab.report.comparison import read_comparison
    from trimtab.report.summary import target_of

    job, runs = workload.job, directory / "recording" / workload.name
    runs.mkdir(parents=True, exist_ok=True)
    plans = parse_plans(",".join(PLANS), "plans")
    failure = compare(job, None, plans, runs, target=target_of(job), ends_at_target=True, repeat=1, resume=True)
    if failure:
        return f"{workload.name}: {failure}"
    file = directory / "curves" / f"{workload.name}.json"
    file.parent.mkdir(exist_ok=True)
    recorded = recorded_of(read_comparison(runs).runs, workload.target_loss)
    file.write_text(json.dumps(recorded.to_json()) + "\n")
    return ""


def _write(directory: Path, cells: list[Cell]) -> None:
    from trimtab.evaluation.judge.page import render
    from trimtab.evaluation.judge.simulation import LEFT_OUT
    from trimtab.evaluation.judge.verdict import summary

    data = {"left_out": LEFT_OUT, "summary": summary(cells), "cells": [cell.to_json() for cell in cells]}
    (directory / "judge.json").write_text(json.dumps(data, indent=2) + "\n")
    (directory / "judge.html").write_text(render(cells), encoding="utf-8")


def _print(cells: list[Cell]) -> None:
    from trimtab.evaluation.judge.verdict import summary

    ran = [cell for cell in cells if cell.measured.arrivals]
    simulated = _table("simulated", "best static plan", "adaptive over it", "over dense")
    for cell in cells:
        simulated.add_row(
            cell.name, cell.best_simulated, _ratio(cell.simulated_over_best), _ratio(cell.simulated_over_dense)
        )
    over, evened = ("adaptive over it", "over dense", "over a hook"), ("over it", "over dense", "over a hook")
    measured = _table(
        "\nmeasured", "\nbest static plan", *(f"\n{each}" for each in over), *(f"evened:\n{each}" for each in evened)
    )
    for cell in ran:
        ratios = (_over(one, *names) for one in (cell.measured, cell.evened) for names in _others(one))
        measured.add_row(cell.name, cell.measured.best or "–", *ratios)
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(simulated)
    if ran:
        console.print()
        console.print(measured)
        print("evened: had every step of a cell computed as long as in the median run")
        print(f"<: given up after {_PATIENCE:g} times as long as adaptive's last run took")
    for name, value in summary(cells).items():
        print(f"{name.replace('_', ', ')}: {value:.2f}× the best static plan")


def _others(measured: Measured) -> tuple[tuple[str, ...], ...]:
    """Return what adaptive is compared with: the best static plan, dense, the better of DDP's hooks."""
    return ((measured.best,) if measured.best else ()), ("dense",), tuple(DDP_HOOKS)


def _over(measured: Measured, *names: str) -> str:
    ratio = _ratio(measured.over(*names))
    return f"<{ratio}" if measured.is_bound(*names) else ratio


def _table(*headings: str) -> Table:
    """Make a table of two columns of names, and of ratios."""
    table = Table(header_style="bold", pad_edge=False, box=None, padding=(0, 2, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < 2 else "right")
    return table


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"
