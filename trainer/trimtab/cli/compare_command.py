"""`trimtab compare`: train one job under several plans in turn, on the same network, and report."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab_api.cli import number, path, whole_number
from trimtab_api.errors import UserError

from trimtab.launch.processes.interrupts import EXIT_CODE, Interrupted, heed, interruptible
from trimtab.plan.names import DDP_HOOKS, GRID_MEANS, check_runs, parse_plans, with_plan, with_seed, without_checkpoints
from trimtab.process.messages import LOGGER
from trimtab.run_files.layout import RunDirectory

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

    from trimtab.launch.local.run import RunRequest
    from trimtab.run_files.schema import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab compare`."""
    parser.add_argument("job", type=path("JOB"), metavar="JOB", help="TrainingJob, YAML")
    parser.add_argument(
        "--network", type=path("--network"), help="emulate this network between the workers; else loopback"
    )
    parser.add_argument(
        "--plans",
        default="adaptive,dense",
        help=f"adaptive, dense, static:RATIO/COLLECTIVE, {' and '.join(DDP_HOOKS)} for torch's own DDP with that hook, "
        f"and grid for {GRID_MEANS}; with commas (adaptive,dense)",
    )
    parser.add_argument(
        "--out", type=path("--out"), required=True, help="directory for the runs, summary.json and report.html"
    )
    parser.add_argument(
        "--target",
        type=number("--target", such_as="0.97"),
        help="value of the target metric at which the model counts as trained; else the job's",
    )
    parser.add_argument(
        "--until-target",
        action="store_true",
        help="end each run when it reaches the target, which halves the time that many plans take",
    )
    parser.add_argument(
        "--repeat",
        type=whole_number("--repeat", 1, 99),
        default=1,
        metavar="N",
        help="run each plan N times, turn by turn, and judge it by its median run; turn i uses spec.seed + i and "
        "begins with another plan, because one seed, or a machine that slows down, may favour a plan in every run",
    )
    parser.add_argument("--resume", action="store_true", help="keep runs that finished with the same inputs")
    parser.add_argument("--loopback", action="store_true", help="do not emulate, even where --network is given")


def run(args: argparse.Namespace) -> int:
    """Run each plan; 0 where all succeeded, 1 where one failed (which ends the comparison), 130 on an interrupt."""
    from trimtab.cli.preparation import prepare
    from trimtab.cli.report_command import report
    from trimtab.report.summary import target_of

    plans = parse_plans(args.plans, "--plans")
    job, network = prepare(args)
    for plan in plans:
        check_runs(job, plan, "--plans")
    target = target_of(job, args.target)
    if args.until_target and target is None:
        raise UserError("needs a target; name one by --target or in the job's spec.target", field="--until-target")
    directory: Path = args.out
    check_directory(directory)
    try:
        with interruptible(), RunDirectory(directory).held():
            failure = compare(
                job,
                network,
                plans,
                directory,
                target=target,
                ends_at_target=args.until_target,
                repeat=args.repeat,
                resume=args.resume,
            )
            report(directory)
    except Interrupted:
        LOGGER.error("interrupted; nothing is left running. --resume keeps the finished runs")
        return EXIT_CODE
    if failure:
        LOGGER.error(failure)
        LOGGER.error("once it is mended, --resume keeps the runs that have finished")
        return 1
    return 0


def check_directory(directory: Path) -> None:
    """Raise `UserError` where ``--out`` names a file."""
    if os.path.isfile(directory):
        raise UserError("is not a directory; name another", field="--out", value=str(directory))


def compare(
    job: TrainingJob,
    network: Path | None,
    plans: list[str],
    directory: Path,
    *,
    target: Target | None,
    ends_at_target: bool,
    repeat: int,
    resume: bool,
    patience: float = inf,
) -> str:
    """Run a job under each plan, ``repeat`` times in turns; returns why a run failed, which ends it, or nothing.

    The caller holds the directory. With ``resume`` runs that finished with the same inputs are kept. A run is given up,
    in the state ``deadline``, when it has trained ``patience`` times as long as the first plan's last run took to the
    target.
    """
    from trimtab.launch.local.run import RunRequest, already_finished
    from trimtab.report.comparison import run_directory, write_comparison
    from trimtab.run_files.schema import SUCCESS_STATES

    requests = [
        RunRequest(
            with_seed(with_plan(without_checkpoints(job), plan), job.spec.seed + turn),
            plan,
            network,
            run_directory(directory, plan, turn),
        )
        for turn in range(repeat)
        for plan in _from(plans, len(plans) * turn // repeat)
    ]
    states = list(SUCCESS_STATES) if ends_at_target else ["succeeded"]
    if patience < inf:
        states.append("deadline")
    write_comparison(directory, ["trimtab", *sys.argv[1:]], plans, target, repeat)
    kept = {request.directory for request in requests if resume and already_finished(request, states)}
    return _run_each(requests, kept, target, states, patience)


def _from(plans: list[str], first: int) -> list[str]:
    """Order the plans anew for each turn: a machine that slows down would else disfavour a plan in every turn."""
    return plans[first:] + plans[:first]


def _run_each(
    requests: list[RunRequest],
    kept: set[RunDirectory],
    target: Target | None,
    states: Sequence[str],
    patience: float,
) -> str:
    """Run each request that is not in ``kept``, to one of the states; returns why one failed, or nothing."""
    from trimtab.cli.progress import Progress
    from trimtab.launch.local.run import run as run_job
    from trimtab.report.summary import summarise
    from trimtab.report.table import sentence
    from trimtab.run_files.reader import read_run

    for request in requests:
        if request.directory not in kept:
            request.directory.result.unlink(missing_ok=True)  # or an early table would show the run before
    with Progress(len(requests), target if "target" in states else None) as progress:
        first, limit = requests[0].plan, inf
        for request in requests:
            heed()
            progress.start(request.plan, request.directory, inf if request.plan == first else limit)
            if request.directory not in kept:
                result = run_job(request, progress.update)  # never restarted: its times would not compare
                if result.state not in states:
                    return f"{request.plan}: {result.message}"
            summary = summarise(read_run(request.directory), target)
            text = sentence(request.plan, summary)
            progress.finish(f"{text} (kept)" if request.directory in kept else text)
            if request.plan == first and summary.seconds_to_target is not None:
                limit = patience * summary.seconds_to_target
    return ""
