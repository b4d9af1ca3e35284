"""`trimtab status`: follow a job that trains, by what rank 0's status server tells."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab_api.command_line import path
from trimtab_api.errors import UserError

from trimtab.launch.run_directory import RunDirectory

if TYPE_CHECKING:
    from trimtab_api.trainer.v1 import status_pb2

#: Seconds between two lines that bring no news.
LINE_SECONDS = 2.0
#: Seconds that the server has to answer at first.
CONNECT_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `trimtab status`."""
    parser.add_argument(
        "run", nargs="?", type=path("RUN"), metavar="RUN", help="run directory (runs/NAME); in a pod, that of its job"
    )
    parser.add_argument("--once", action="store_true", help="say what is now, and end")
    parser.add_argument("--json", action="store_true", help="a JSON object a line, by the contract's field names")


def run(args: argparse.Namespace) -> int:
    """Print lines until the job has ended; 0 where it succeeded or goes on, 1 where it failed."""
    import grpc
    from trimtab_api.channels import explain, open_channel
    from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc

    address = address_of(args.run, os.environ.get("TRIMTAB_RUN_DIR"))
    show = _as_json if args.json else line
    status = status_pb2.Status()
    try:
        with open_channel(address) as channel:
            stub = status_pb2_grpc.TrainerStatusStub(channel)
            status = stub.GetStatus(status_pb2.GetStatusRequest(), timeout=CONNECT_SECONDS, wait_for_ready=True)
            if args.once:
                print(show(status))
                return _exit_code(status)
            for status in stub.WatchStatus(status_pb2.WatchStatusRequest(interval_seconds=LINE_SECONDS)):
                print(show(status), flush=True)
    except grpc.RpcError as error:
        print(f"trimtab: no more status from {address}: {explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return _exit_code(status)


def address_of(run: Path | None, here: str | None) -> str:
    """Where the status of a run is served; ``here`` is the run directory of the pod this runs in.

    Raises `UserError` where there is none, or no run goes on there.
    """
    if run is None and here is None:
        raise UserError("name a run directory, such as runs/digits", field="RUN")
    directory = RunDirectory(run or Path(str(here)))
    try:
        address = directory.status_address.read_text().strip()
    except (OSError, ValueError):
        address = ""
    if not address:
        raise UserError(
            "no run goes on there; `trimtab report` shows one that has ended", field="RUN", value=str(directory.path)
        )
    return address


def line(status: status_pb2.Status) -> str:
    """One line for people."""
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
        facts.append(f"bandwidth {format_bandwidth(network.bandwidth_bytes_per_second)}")
        facts += ["(old)"] if network.stale else []
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
