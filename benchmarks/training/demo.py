"""The demo's promises: adaptive beside dense on a network that changes.

    python benchmarks training/demo
    python benchmarks training/demo --runs runs/demo     # of runs that `make demo` has made

Needs root and /dev/net/tun; takes three minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from results import keep, record
from trimtab.report.comparison import read_comparison

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Compare, unless the runs are given; record the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="the directory of a finished comparison")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = args.runs or Path(scratch) / "demo"
        if args.runs is None:
            argv = ["compare", ROOT / "examples/digits.yaml", "--network", ROOT / "examples/networks/changing.yaml"]
            argv += ["--plans", "adaptive,dense", "--out", directory]
            subprocess.run([sys.executable, "-m", "trimtab", *map(str, argv)], check=True)
        summaries = read_comparison(directory).summaries
    adaptive, dense = summaries["adaptive"], summaries["dense"]
    if not (adaptive.valid and dense.valid):
        raise SystemExit("the emulator could not keep up with its network: run it again while the machine is quiet")
    if adaptive.seconds_to_target is None or dense.seconds_to_target is None:
        raise SystemExit("one of the runs did not reach the target")
    record("demo-target-time", adaptive.seconds_to_target / dense.seconds_to_target)
    record("demo-wall-time", adaptive.wall_seconds / dense.wall_seconds)
    record("demo-accuracy", 100 * (adaptive.accuracy or 0.0))
    record("demo-trials", 100 * adaptive.exploration_seconds / adaptive.wall_seconds)
    keep(summaries={name: summary.to_json() for name, summary in summaries.items()})
    for name, summary in summaries.items():
        print(f"{name}: target after {summary.seconds_to_target:.1f} s of {summary.wall_seconds:.1f} s")


if __name__ == "__main__":
    main()
