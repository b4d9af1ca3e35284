"""How many random faults a job holds against, and how long it takes from `kill -9` of a rank to the next step.

    python benchmarks training/faults_held --minutes 40 --seed 1

Four ranks train on the emulated network through 19 kinds of faults (`tests/soak`, docs/explanation/checkpoints.md).
Needs root and /dev/net/tun; takes the minutes that it is given.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from results import keep, record
from soak.fault_plan import Kind
from soak.soak_run import soak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    report = soak(Path(tempfile.mkdtemp(prefix="trimtab-soak-")) / "soak", asked.seed, asked.minutes)
    print("\n".join(report.lines()))
    held = sum(not outcome.problems for outcome in report.outcomes)
    record("soak-held", 100 * held / len(report.outcomes))
    record("kill-to-step", *(each.seconds for each in report.outcomes if each.fault.kind is Kind.KILL_RANK))
    keep(seed=report.seed, plan=report.plan, num_faults=len(report.outcomes))


if __name__ == "__main__":
    main()
