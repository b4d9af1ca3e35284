"""`trimtab run`: train a TrainingJob on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab_api.cli import path, whole_number
from trimtab_api.errors import UserError

from trimtab.launch.processes.interrupts import EXIT_CODE, Interrupted, interruptible
from trimtab.plan.names import check_runs, parse_plan, plan_of, with_plan
from trimtab.process.messages import LOGGER
from trimtab.run_files.layout import RunDirectory

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab run`."""
    parser.add_argument("job", type=path("JOB"), metavar="JOB", help="TrainingJob, YAML")
    parser.add_argument(
        "--network", type=path("--network"), help="emulate this network between the workers; else loopback"
    )
    parser.add_argument("--plan", help="adaptive, dense, or RATIO/COLLECTIVE such as 0.01/all-gather; else the job's")
    parser.add_argument("--out", type=path("--out"), help="run directory (runs/NAME)")
    parser.add_argument(
        "--tail",
        type=whole_number("--tail", 0, 1_000_000),
        metavar="RANK",
        help="show what that rank's script prints, as it prints it; all ranks' output is in DIR/logs",
    )
    parser.add_argument(
        "--metrics-port",
        type=whole_number("--metrics-port", 1, 65535),
        metavar="PORT",
        help="serve the run's metrics to Prometheus at 127.0.0.1:PORT while it trains, and its monitors' above",
    )
    parser.add_argument("--json-logs", action="store_true", help="print JSON lines instead of a panel or text")
    parser.add_argument("--loopback", action="store_true", help="do not emulate, even where --network is given")


def run(args: argparse.Namespace) -> int:
    """Run, showing live progress; 0 where it succeeded, 1 where it failed, 130 where it was interrupted."""
    from trimtab.cli.preparation import prepare
    from trimtab.cli.progress import Progress
    from trimtab.launch.local.run import RunRequest
    from trimtab.launch.local.run import run as run_job
    from trimtab.report.summary import summarise, target_of
    from trimtab.report.table import sentence
    from trimtab.run_files.layout import is_complete
    from trimtab.run_files.reader import read_run
    from trimtab.run_files.schema import NOT_VALID

    plan = None if args.plan is None else parse_plan(args.plan, "--plan")
    job, network = prepare(args)
    if plan is not None:
        check_runs(job, plan, "--plan")
        job = with_plan(job, plan)
    if args.tail is not None and args.tail >= job.spec.num_ranks:
        raise UserError(
            f"is no rank of the job, which has {job.spec.num_ranks}; name one from 0 to {job.spec.num_ranks - 1}",
            field="--tail",
            value=str(args.tail),
        )
    if args.metrics_port is not None:
        refuse_taken_ports(args.metrics_port, 1 if network else 1 + job.spec.workers)
    directory = RunDirectory(args.out or Path("runs") / job.metadata.name)
    job = job.with_claim_mounted_at(str(directory.checkpoints.resolve()))
    try:
        with interruptible(), Progress(num_runs=1, tail=args.tail, as_json=args.json_logs) as progress:
            progress.start(plan_of(job), directory)
            request = RunRequest(job, plan_of(job), network, directory, max_restarts(job), args.metrics_port)
            result = run_job(request, progress.update, progress.restart)
            progress.end()
            if result.state == "succeeded" and is_complete(directory.path):
                progress.finish(sentence(plan_of(job), summarise(read_run(directory), target_of(job))))
                progress.finish(f"its files are in {directory.path}; `trimtab report {directory.path}` draws them")
            elif result.state == "succeeded":
                progress.finish(f"{plan_of(job)}: succeeded; the records in {directory.path} are incomplete")
    except Interrupted:
        LOGGER.error("interrupted; nothing is left running")
        return EXIT_CODE
    if result.state != "succeeded":
        LOGGER.error(result.message)
        return 1
    if not result.valid:
        print(NOT_VALID, file=sys.stderr)
    return 0


def max_restarts(job: TrainingJob) -> int:
    """Return how often all ranks may be restarted: never, unless the job keeps checkpoints or sets how often.

    A cluster restarts by default, because pods and nodes come and go. On one machine a worker that died will most
    likely die again, and without a checkpoint the user wants to know at once.
    """
    spec = job.spec
    is_asked_for = bool(spec.model_fields_set & {"restart_policy", "max_restarts", "checkpoint"})
    return spec.max_restarts if is_asked_for and spec.restart_policy == "OnFailure" else 0


def refuse_taken_ports(first: int, count: int) -> None:
    """Raise `UserError` where the run's metrics, and those of its monitors above, cannot be served."""
    from trimtab.launch.environment.ports import refuse_taken_port
    from trimtab.launch.local.run import METRICS_HOST

    if first + count > 65536:
        remedy = f"leaves too few ports above it for {count - 1} monitors; choose one up to {65536 - count}"
        raise UserError(remedy, field="--metrics-port", value=str(first))
    for port in range(first, first + count):
        refuse_taken_port(METRICS_HOST, port, "--metrics-port")
