"""`trimtab metrics`: serve a run's metrics to Prometheus, while it trains or afterwards."""

from __future__ import annotations

import argparse

from trimtab_api.cli import path, whole_number
from trimtab_api.errors import UserError

from trimtab.run_files.layout import RunDirectory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab metrics`."""
    parser.add_argument("run", type=path("RUN"), metavar="RUN", help="run directory (runs/NAME)")
    parser.add_argument("--port", type=whole_number("--port", 1, 65535), default=9400, help="to serve at (9400)")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at (127.0.0.1)")


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends the process."""
    from trimtab.status.metrics import serve

    directory = RunDirectory(args.run)
    if not directory.job.exists():
        remedy = "holds no run; name a run directory, such as runs/digits"
        raise UserError(remedy, field="RUN", value=str(directory.path))
    server = serve(directory, args.host, args.port)
    print(f"metrics of {directory.path} at http://{args.host}:{args.port}/metrics", flush=True)
    server.wait()
    return 0
