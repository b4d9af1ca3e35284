"""Adaptive's held-out quality beside dense's, on the networks of the judge: of as many samples, and in as much time.

    python benchmarks training/quality --workloads digits --networks C1 demo --seeds 3 --out runs/quality    # root

Each run trains a workload of the judge, on four workers: dense to its end, adaptive with as many epochs, and adaptive
with as many more as it has time for until dense ends. Where the learning rate falls over all epochs they are planned to
end before dense does; where it is the same throughout, to end after it, and what counts is what was evaluated by then.
Quality is the mean of the last three evaluations. Runs that are whole in ``--out`` are not repeated.

Where dense would take hours (the far network), it need not run to its end:

    python benchmarks training/quality --networks far --dense-as-on C1 --share 0.1 --seeds 1 --out runs/quality

times its steps until the workload's target, takes its quality from its run with the same seed on C1, for dense trains
the same to the last bit on every network, and gives adaptive a tenth of the time that all of dense's steps would take.

Needs root and /dev/net/tun; takes ten minutes to an hour a workload and network.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

import yaml
from results import record
from trimtab.evaluation.judge import RANDOM_NETWORK_SEED
from trimtab.evaluation.judge.networks import networks
from trimtab.evaluation.judge.workloads import WORKLOADS, Workload
from trimtab_netmon.emulate import write_network

_EVALUATIONS = 3
#: Workloads whose learning rate falls over all epochs, which are to end in dense's time.
_RATE_FALLS = ("digits",)
#: Of the time that dense takes, what they plan for, and the others: a longer run sees other phases of the network.
_TO_END_BEFORE, _TO_END_AFTER = 0.95, 1.15


def job_of(workload: Workload, seed: int) -> dict[str, Any]:
    """Its TrainingJob."""
    job: dict[str, Any] = json.loads(workload.job.model_dump_json(by_alias=True, exclude_none=True))
    job["spec"]["seed"] = seed
    return job


def train(workload: Workload, epochs: int, network: Path, plan: str, seed: int, run: Path) -> list[dict[str, Any]]:
    """What one run recorded, line by line."""
    job = job_of(workload, seed)
    del job["spec"]["target"]
    job["spec"]["template"]["spec"]["containers"][0]["command"] += ["--epochs", str(epochs)]  # the last one counts
    return lines_of(run, job, "run", "--plan", plan, "--network", str(network))


def seconds_of_all_steps(workload: Workload, num_steps: int, network: Path, seed: int, run: Path) -> float:
    """How long dense takes for so many steps, by those until the workload's target: the mean, the first one apart."""
    options = ("--plans", "dense", "--until-target", "--network", str(network))
    times = [line["time"] for line in lines_of(run, job_of(workload, seed), "compare", *options) if "event" not in line]
    return float(times[0] + (num_steps - 1) * (times[-1] - times[0]) / (len(times) - 1))


def lines_of(run: Path, job: dict[str, Any], command: str, *options: str) -> list[dict[str, Any]]:
    """What trimtab's command recorded of the job, which it trains unless that is there and whole."""
    out = run / "out"
    if not (done := run / "whole").exists():
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir(parents=True)
        (run / "job.yaml").write_text(yaml.safe_dump(job))
        argv = [sys.executable, "-m", "trimtab", command, str(run / "job.yaml"), "--out", str(out), *options]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=3600)
        done.touch()
    (metrics,) = out.glob("**/metrics.jsonl")
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def epochs_of(workload: Workload) -> int:
    """What its command says."""
    return int(workload.command[workload.command.index("--epochs") + 1])


def seconds_of(lines: list[dict[str, Any]]) -> float:
    """Until the last step ended."""
    return float([line["time"] for line in lines if "event" not in line][-1])


def described(lines: list[dict[str, Any]], seconds: float) -> str:
    """``480 steps in 31 s: loss 0.3120, accuracy 0.9610``."""
    last = [line for line in lines if line.get("event") == "evaluation"][-_EVALUATIONS:]
    named = ", ".join(f"{n} {mean(line[n] for line in last):.4f}" for n in ("loss", "accuracy") if n in last[-1])
    num_steps = sum("event" not in line for line in lines)
    return f"{num_steps} steps in {seconds:.0f} s: {named}"


def loss_of(lines: list[dict[str, Any]]) -> float:
    """Return the mean of the last evaluations' losses."""
    losses = [line["loss"] for line in lines if line.get("event") == "evaluation" and "loss" in line]
    return mean(losses[-_EVALUATIONS:])


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
    parser.add_argument("--dense-as-on", choices=by_name, help="take dense's quality from its run on this network")
    parser.add_argument("--share", type=float, default=1.0, help="of dense's time, what adaptive is given")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    are_good = [
        measure(workload, name, seed, args)
        for seed in range(1, args.seeds + 1)
        for name in args.networks
        for workload in WORKLOADS
        if workload.name in args.workloads
    ]
    record("quality-in-time", 100 * mean(map(float, are_good)))


def measure(workload: Workload, name: str, seed: int, args: argparse.Namespace) -> bool:
    """Print three lines: dense, and adaptive of as many samples and in as much time.

    Returns whether adaptive's loss in as much time is at most dense's.
    """

    def network(name: str) -> Path:
        path: Path = args.out / f"{name}.yaml"
        path.write_text(write_network(networks(RANDOM_NETWORK_SEED)[name]))
        return path

    def run(name: str) -> Path:
        path: Path = args.out / f"{workload.name}-on-{name}-seed-{seed}"
        return path

    cell, epochs = f"{workload.name} on {name}, seed {seed}", epochs_of(workload)
    where = args.dense_as_on or name
    dense = train(workload, epochs, network(where), "dense", seed, run(where) / "dense")
    seconds = seconds_of(dense)
    if args.dense_as_on:
        num_steps = sum("event" not in line for line in dense)
        seconds = seconds_of_all_steps(workload, num_steps, network(name), seed, run(name) / "dense-until-target")
    print(f"{cell}: dense, {described(dense, seconds)}", flush=True)
    alike = train(workload, epochs, network(name), "adaptive", seed, run(name) / "adaptive")
    print(f"{cell}: adaptive, as many samples, {described(alike, seconds_of(alike))}", flush=True)
    given = args.share * seconds
    more = epochs_in_time(workload, given, seconds_of(alike))
    longer = train(workload, more, network(name), "adaptive", seed, run(name) / f"adaptive-in-time-{args.share:g}")
    by_then = [line for line in longer if line["time"] <= given]
    how_long = "as much time" if args.share == 1.0 else f"{args.share:.0%} of the time"
    print(f"{cell}: adaptive, {how_long}, {described(by_then, seconds_of(by_then))}", flush=True)
    return loss_of(by_then) <= loss_of(dense)


if __name__ == "__main__":
    main()
