"""`trimtab keeper`: keep the checkpoints of a job's other processes in memory."""

from __future__ import annotations

import argparse

from trimtab_api.cli import quantity
from trimtab_api.units import format_size, parse_size

#: Most bytes that one keeper may be told to hold.
_MOST_BYTES = 1 << 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab keeper`."""
    size = quantity("--bytes", parse_size, 1, _MOST_BYTES, format_size)
    parser.add_argument("--listen", required=True, metavar="ADDRESS", help="HOST:PORT or unix:PATH")
    parser.add_argument("--bytes", required=True, type=size, metavar="SIZE", help="most that it holds, such as 2GB")
    parser.add_argument("--host", default="", help="tells hosts apart: copies go to two of them")


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends the process."""
    import asyncio

    from trimtab.checkpoint.keeper.server import serve

    asyncio.run(serve(args.listen, args.bytes, args.host))
    return 0
