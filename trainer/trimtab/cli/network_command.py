"""`trimtab network`: a network that nobody tuned for, to compare plans on."""

from __future__ import annotations

import argparse

from trimtab_api.cli import whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `trimtab network`."""
    parser.add_argument(
        "--seed",
        type=whole_number("--seed", 0, 2**31 - 1),
        required=True,
        help="the same seed writes the same network",
    )
    parser.add_argument(
        "--seconds",
        type=whole_number("--seconds", 1, 86400),
        default=60,
        help="length of all phases, 10 to 20 s each; the last one then stays in force (default: 60)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the file."""
    from trimtab_netmon.emulate import random_network, write_network

    print(f"# trimtab network --seed {args.seed} --seconds {args.seconds}")
    print(write_network(random_network(args.seed, args.seconds)), end="")
    return 0
