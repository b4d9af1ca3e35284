"""`trimtab worker`: the entry of a worker's pod."""

from __future__ import annotations

import argparse

from trimtab_api.errors import UserError

from trimtab.launch.processes.interrupts import interruptible


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab worker`."""
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="the training command")


def run(args: argparse.Namespace) -> int:
    """Run the command once a rank; returns the exit code of the first rank that failed, or 0."""
    from trimtab.launch.pod.worker import run_worker

    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not argv:
        raise UserError("write the training command after --", field="COMMAND")
    with interruptible():
        return run_worker(argv)
