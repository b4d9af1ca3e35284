"""`trimtab trace`: what went on in the profiled steps of a run, for a trace viewer."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from trimtab_api.cli import path
from trimtab_api.errors import UserError

from trimtab.report.chrome_trace import chrome_trace
from trimtab.run_files.layout import RunDirectory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab trace`."""
    parser.add_argument("directory", type=path("DIRECTORY"), metavar="DIRECTORY", help="what `trimtab run --out` named")
    parser.add_argument(
        "--out", type=path("FILE"), metavar="FILE", help="where the trace is written (default: DIRECTORY/trace.json)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the trace; returns 0."""
    out: Path = args.out or args.directory / "trace.json"
    trace = chrome_trace(RunDirectory(args.directory))
    try:
        out.write_text(json.dumps(trace) + "\n")
    except OSError as error:
        raise UserError(
            f"cannot be written ({error.strerror}); name another file", field="--out", value=str(out)
        ) from None
    steps = {event["args"]["step"] for event in trace["traceEvents"] if event["name"] == "STEP"}
    print(f"trace: {out} ({len(steps)} profiled steps); open it in chrome://tracing or ui.perfetto.dev")
    return 0
