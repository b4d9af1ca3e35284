"""The judge's promises: adaptive beside the best static plan, dense and DDP's hooks.

    python benchmarks training/judge --simulate --out runs/judge     # other flags are those of `trimtab judge`

Needs root and /dev/net/tun unless simulated; takes seconds simulated, four hours whole.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from results import keep, record


def main() -> None:
    """Run the judge, and record what its judge.json says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/judge"))
    args, others = parser.parse_known_args()
    subprocess.run([sys.executable, "-m", "trimtab", "judge", "--out", str(args.out), *others], check=True)
    told = json.loads((args.out / "judge.json").read_text())
    record("judge-simulated-median", told["summary"]["simulated_median"])
    record("judge-simulated-worst", told["summary"]["simulated_worst"])
    if "measured_median" in told["summary"]:
        record("judge-median", told["summary"]["measured_median"])
        record("judge-worst", told["summary"]["measured_worst"])
        for promise, name in (("judge-dense", "dense"), ("judge-ddp-hook", "best_hook")):
            over = [cell.get(f"measured_over_{name}") for cell in told["cells"]]
            record(promise, max(value for value in over if value is not None))
    keep(**told)
    print(json.dumps(told["summary"]))


if __name__ == "__main__":
    main()
