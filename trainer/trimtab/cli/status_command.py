"""`trimtab status`: follow a training job through rank 0's status server."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab_api.cli import path
from trimtab_api.errors import UserError

from trimtab.process.messages import LOGGER
from trimtab.run_files.layout import RunDirectory

if TYPE_CHECKING:
    from trimtab_api.trainer.v1 import status_pb2

#: Seconds between two lines while nothing changes.
LINE_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab status`."""
    parser.add_argument(
        "run", nargs="?", type=path("RUN"), metavar="RUN", help="run directory (runs/NAME); in a pod, that of its job"
    )
    parser.add_argument("--once", action="store_true", help="print the present status, and end")
    parser.add_argument("--json", action="store_true", help="a JSON object a line, by the contract's field names")


def run(args: argparse.Namespace) -> int:
    """Print lines until the job has ended; returns 1 where it failed or cannot be followed, else 0."""
    from trimtab.status.following import LostError, follow

    directory = directory_of(args.run, os.environ.get("TRIMTAB_RUN_DIR"))
    show = _as_json if args.json else line
    try:
        for status in follow(directory, LINE_SECONDS):
            print(show(status), flush=True)
            if args.once:
                break
    except LostError as error:
        LOGGER.error(error)
        return 1
    return _exit_code(status)


def directory_of(run: Path | None, here: str | None) -> RunDirectory:
    """Return the run directory of the command line, else ``here``, the pod's. Raise `UserError` without either."""
    if run is None and here is None:
        raise UserError("name a run directory, such as runs/digits", field="RUN")
    return RunDirectory(run or Path(str(here)))


def line(status: status_pb2.Status) -> str:
    """Return the status as one line for people."""
    from trimtab_api.units import format_bandwidth, format_duration

    state = _state(status)
    facts = [f"{status.job}: {state}"]
    if status.step:
        facts.append(f"step {status.step}")
        facts += [f"loss {status.loss:.4f}"] if status.HasField("loss") else []
        facts.append(f"step time {format_duration(status.step_seconds)}")
    network = status.network
    if network.latency_seconds and network.bandwidth_bytes_per_second:
        facts.append(f"latency {format_duration(network.latency_seconds)}")
        at_least = "at least " if network.bandwidth_lower_bound else ""
        facts.append(f"bandwidth {at_least}{format_bandwidth(network.bandwidth_bytes_per_second)}")
        facts += [f"(not to be trusted: measured {network.bandwidth_age_seconds:.0f}s ago)"] if network.stale else []
    if status.plan.name:
        facts.append(f"plan {status.plan.name} since step {status.plan.adopted_at_step}")
    reason = status.message or status.plan.reason
    return "  ".join(facts) + (f": {reason}" if reason else "")


def _state(status: status_pb2.Status) -> str:
    from trimtab_api.trainer.v1 import status_pb2

    return status_pb2.State.Name(status.state).removeprefix("STATE_").lower()


def _as_json(status: status_pb2.Status) -> str:
    from google.protobuf.json_format import MessageToJson

    return MessageToJson(status, preserving_proto_field_name=True, indent=None)


def _exit_code(status: status_pb2.Status) -> int:
    from trimtab_api.trainer.v1 import status_pb2

    return 1 if status.state == status_pb2.STATE_FAILED else 0
