"""Adaptive's held-out quality beside dense's, on the networks of the judge: of as many samples, and in as much time.

    python tests/control/measure_quality.py --workloads digits --networks C1 demo --seeds 3 --out runs/quality    # root

Each run trains a workload of the judge, on four workers: dense to its end, adaptive with as many epochs, and adaptive
with as many more as it has time for until dense ends. Where the learning rate falls over all epochs they are planned to
end before dense does; where it is the same throughout, to end after it, and what counts is what was evaluated by then.
Quality is the mean of the last three evaluations. Runs that are whole in ``--out`` are not repeated.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from math import ceil, inf
from pathlib import Path
from statistics import mean
from typing import Any

import yaml
from trimtab.judge import RANDOM_NETWORK_SEED
from trimtab.judge.networks import networks
from trimtab.judge.workloads import WORKLOADS, Workload
from trimtab_netmon.emulate import write_network

_EVALUATIONS = 3
#: Workloads whose learning rate falls over all epochs, which are to end in dense's time.
_RATE_FALLS = ("digits",)
#: Of the time that dense takes, what they plan for, and the others: a longer run sees other phases of the network.
_TO_END_BEFORE, _TO_END_AFTER = 0.95, 1.15


def train(workload: Workload, epochs: int, network: Path, plan: str, seed: int, run: Path) -> list[dict[str, Any]]:
    """What one run recorded, line by line."""
    job: dict[str, Any] = json.loads(workload.job.model_dump_json(by_alias=True, exclude_none=True))
    del job["spec"]["target"]
    job["spec"]["seed"] = seed
    job["spec"]["template"]["spec"]["containers"][0]["command"] += ["--epochs", str(epochs)]  # the last one counts
    if not (done := run / "whole").exists():
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir(parents=True)
        (run / "job.yaml").write_text(yaml.safe_dump(job))
        argv = ("trimtab", "run", run / "job.yaml", "--out", run / "out", "--plan", plan, "--network", network)
        subprocess.run([sys.executable, "-m", *map(str, argv)], check=True, stdout=subprocess.DEVNULL, timeout=3600)
        done.touch()
    return [json.loads(line) for line in (run / "out/metrics.jsonl").read_text().splitlines()]


def epochs_of(workload: Workload) -> int:
    """What its command says."""
    return int(workload.command[workload.command.index("--epochs") + 1])


def seconds_of(lines: list[dict[str, Any]]) -> float:
    """Until the last step ended."""
    return float([line["time"] for line in lines if "event" not in line][-1])


def described(lines: list[dict[str, Any]], until: float = inf) -> str:
    """``480 steps in 31 s: loss 0.3120, accuracy 0.9610``, of what was there ``until`` so many seconds."""
    lines = [line for line in lines if line["time"] <= until]
    last = [line for line in lines if line.get("event") == "evaluation"][-_EVALUATIONS:]
    named = ", ".join(f"{n} {mean(line[n] for line in last):.4f}" for n in ("loss", "accuracy") if n in last[-1])
    num_steps = sum("event" not in line for line in lines)
    return f"{num_steps} steps in {seconds_of(lines):.0f} s: {named}"


def epochs_in_time(workload: Workload, dense_seconds: float, seconds: float) -> int:
    """How many epochs adaptive is given, whose run of as many samples took ``seconds``."""
    times = epochs_of(workload) * dense_seconds / seconds
    return max(1, int(_TO_END_BEFORE * times)) if workload.name in _RATE_FALLS else ceil(_TO_END_AFTER * times)


def main() -> None:
    """Print a line a run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names, by_name = [each.name for each in WORKLOADS], networks(RANDOM_NETWORK_SEED)
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument("--networks", nargs="+", choices=by_name, default=list(by_name))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(1, args.seeds + 1):
        for name in args.networks:
            network = args.out / f"{name}.yaml"
            network.write_text(write_network(by_name[name]))
            for workload in (each for each in WORKLOADS if each.name in args.workloads):
                cell = f"{workload.name} on {name}, seed {seed}"
                run, epochs = args.out / cell.replace(", ", "-").replace(" ", "-"), epochs_of(workload)
                dense = train(workload, epochs, network, "dense", seed, run / "dense")
                print(f"{cell}: dense, {described(dense)}", flush=True)
                alike = train(workload, epochs, network, "adaptive", seed, run / "adaptive")
                print(f"{cell}: adaptive, as many samples, {described(alike)}", flush=True)
                more = epochs_in_time(workload, seconds_of(dense), seconds_of(alike))
                longer = train(workload, more, network, "adaptive", seed, run / "adaptive-in-time")
                print(f"{cell}: adaptive, as much time, {described(longer, seconds_of(dense))}", flush=True)


if __name__ == "__main__":
    main()
