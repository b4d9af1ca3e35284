"""The preparation of `run` and `compare`: read the job and its network, and check that both can run here."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab_api.errors import UserError

from trimtab.launch.local.hosts import why_not_emulated
from trimtab.process.messages import LOGGER

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob


def prepare(args: argparse.Namespace) -> tuple[TrainingJob, Path | None]:
    """Load the job of ``args.job``, and the network to emulate or None for loopback. Print warnings to stderr.

    Raises:
        UserError: Names the file at fault.
    """
    from trimtab_api.trainingjob import load_training_job

    from trimtab.launch.local.preflight import check, warnings
    from trimtab.plan.names import without_checkpoints

    job = load_training_job(args.job)
    try:
        check(without_checkpoints(job) if args.command == "compare" else job)
    except UserError as error:
        raise error.in_file(str(args.job)) from None
    network = choose_network(args.network, args.loopback, job.spec.workers)
    for each in [*warnings(job), *ignored_variables(args.command, os.environ)]:
        LOGGER.warning(f"{args.job}: {each}")
    return job, network


def ignored_variables(command: str, environ: Mapping[str, str]) -> list[str]:
    """Return a line for each variable that other launchers' scripts read, and that has no effect on this command."""
    plan_flag = "--plan" if command == "run" else "--plans"
    remedies = {
        "TRIMTAB_PLAN": f"use {plan_flag}",
        "TRIMTAB_RUN_DIR": "use --out",
        "TRIMTAB_JOB": "name the job's file",
    }
    return [
        f"{name}: {environ[name]!r}: has no effect on `trimtab {command}`, only on scripts that other launchers start; "
        f"{remedy}"
        for name, remedy in remedies.items()
        if environ.get(name)
    ]


def choose_network(network: Path | None, loopback: bool, num_workers: int) -> Path | None:
    """Return the network file to emulate, or None for loopback; stderr is told where emulation is impossible here.

    The file is checked in either case.

    Raises:
        UserError: The file is wrong.
    """
    if network is None:
        return None
    from trimtab_netmon.emulate import load_network
    from trimtab_netmon.emulate.emulator import MAX_HOSTS

    load_network(network).check_hosts(num_workers)
    if loopback:
        return None
    if num_workers > MAX_HOSTS:
        raise UserError(
            f"joins at most {MAX_HOSTS} workers, and the job has {num_workers}; lower its spec.workers, or add "
            "--loopback",
            field="--network",
            value=str(network),
        )
    if why_not := why_not_emulated():
        LOGGER.warning(f"on loopback, without the network of {network}: {why_not}")
        return None
    return network
