"""The promises of `trimtab bench`: kernels, collectives and whole steps.

    python benchmarks costs/product_bench step      # other flags are those of `trimtab bench step`

Needs root and /dev/net/tun, for kernels nothing more; takes a minute for kernels, ten for the others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from results import keep, record

PLAN = "0.01/all-gather"
#: Each network of `trimtab bench step`, by latency and bandwidth in bytes/s.
STEPS = {(0.0005, 125e6): "step-near", (0.005, 125e6): "step-far", (0.002, 25e6): "step-narrow"}


def record_kernels(lines: list[dict[str, Any]]) -> None:
    """Record the fused pass at 1%."""
    (fused,) = (line for line in lines if line["kernel"] == "fused_select" and line["ratio"] == 0.01)
    record("selection-floor", fused["floor_ratio"])
    record("selection-topk", fused["speedup_over_topk"])


def record_collectives(told: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Record how often the cost model is right, or how SparDL's exchanges compare."""
    if isinstance(told, dict):
        record("collectives-named", 100 * told["right"] / told["clear_cells"])
    else:
        beside = ("ok-topk", "gtopk", "topk-dsa", "all-gather")
        record("spardl-exchange", min(line["over_spardl"] for line in told if line["collective"] in beside))


def record_steps(networks: list[dict[str, Any]]) -> None:
    """Record dense's step time over ours at 1%, PowerSGD's over ours, and what is exposed."""
    powersgd = []
    for network in networks:
        seconds = network["step_seconds"]
        ours = next(name for name in seconds if name.startswith(PLAN))
        name = STEPS[(round(network["latency"], 6), round(network["bandwidth"]))]
        record(name, network["speedup_over_dense"][ours])
        powersgd += [value / seconds[ours] for method, value in seconds.items() if "powersgd" in method.lower()]
        if name == "step-far":
            record("step-exposed", 100 * network["exposed_share"][ours])
    record("step-powersgd", min(powersgd))


RECORDED = {"kernels": record_kernels, "collectives": record_collectives, "step": record_steps}


def main() -> None:
    """Run `trimtab bench`, and record what it measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=RECORDED)
    args, others = parser.parse_known_args()
    argv = [sys.executable, "-m", "trimtab", "bench", args.what, "--json", *others]
    told = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout)
    RECORDED[args.what](told)
    keep(told=told)
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
