"""Run directories as a finished comparison leaves them, with fake figures: for the tests of summary and report."""

import itertools
import json
import math
import random
from pathlib import Path

PHASES = [(0.0, 0.001, 125e6), (12.0, 0.025, 125e6), (24.0, 0.002, 12.5e6), (36.0, 0.001, 125e6)]
JOB = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits"},
    "spec": {"workers": 4, "processesPerWorker": 1, "seed": 7, "target": {"metric": "accuracy", "value": 0.97}},
}
MACHINE = {"python": "3.11.7", "torch": "2.15.0", "system": "Linux", "cores": 2, "memory_bytes": 25_000_000_000}


def write_comparison(directory: Path, plans: dict[str, float], end: float = 48.0) -> None:
    """``plans``: mean step seconds by plan name. Adaptive changes its plan with every phase, after a trial each."""
    directory.mkdir(parents=True, exist_ok=True)
    comparison = {
        "command": ["trimtab", "compare", "examples/digits.yaml", "--network", "net.yaml", "--out", str(directory)],
        "plans": list(plans),
        "target": {"metric": "accuracy", "value": 0.97},
    }
    (directory / "comparison.json").write_text(json.dumps(comparison))
    for name, seconds in plans.items():
        write_run(directory / name.replace("/", "-"), name, seconds, end)


def write_run(directory: Path, plan: str, mean_step_seconds: float, end: float, trials: int = 4) -> None:
    """One run that learns as fast as it steps."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random(plan)
    metrics, decisions = [], []
    time, step = 0.0, 0
    in_force = "dense-ring" if plan == "adaptive" else plan
    pending = list(PHASES) if plan == "adaptive" else []
    while time < end:
        phase = [each for each in PHASES if each[0] <= time][-1]
        slow = math.sqrt(125e6 / phase[2]) if plan == "dense" else 1 + 20 * phase[1]
        if pending and time >= pending[0][0] + 1.5:
            pending.pop(0)
            previous, in_force = (
                in_force,
                rng.choice(["0.011/all-gather", "0.033/artopk-star-ring", "0.004/all-gather"]),
            )
            decisions += decision(len(decisions) // 2, step, time, previous, in_force, phase)
            for _ in range(trials):
                time += 0.05
                metrics.append(step_line(step, time, 0.05, in_force, phase, trial=True))
        seconds = mean_step_seconds * slow * rng.uniform(0.9, 1.2)
        time += seconds
        step += 1
        metrics.append(step_line(step, time, seconds, in_force, phase, trial=False))
        if step % 20 == 0:
            accuracy = 0.985 - 0.9 * math.exp(-step / 60) + rng.uniform(-0.003, 0.003)
            metrics.append({"event": "evaluation", "step": step, "time": time, "accuracy": accuracy})
    phases = [{"time": t, "latency": latency, "bandwidth": bandwidth} for t, latency, bandwidth in PHASES]
    result = {"state": "succeeded", "plan": plan, "emulated": True, "valid": True, "wall_seconds": end + 5}
    write_lines(directory / "metrics.jsonl", metrics)
    write_lines(directory / "decisions.jsonl", decisions)
    write_lines(directory / "network.jsonl", phases)
    links = [
        {"source": a, "target": b, "latency": 0.001 * (1 + b), "bandwidth": 125e6 / (1 + a)}
        for a, b in itertools.permutations(range(4), 2)
    ]
    (directory / "links.json").write_text(json.dumps({"links": links}))
    (directory / "result.json").write_text(json.dumps(result | {"machine": MACHINE}))
    (directory / "job.json").write_text(json.dumps(JOB))


def step_line(step, time, seconds, plan, phase, trial):
    return {
        "step": step,
        "time": time,
        "loss": 2.3 * math.exp(-step / 80) + 0.02,
        "step_seconds": seconds,
        "compute_seconds": min(seconds, 0.06),
        "compress_seconds": 0.01,
        "collective_seconds": seconds - min(seconds, 0.06) + 0.01,
        "bytes": 35_000_000 if plan.startswith("dense") else 700_000,
        "plan": plan,
        "plan_version": 0,
        "gain": 0.9,
        "latency": phase[1] * 1.02,
        "bandwidth": phase[2] * 0.97,
        "trial": trial,
    }


def decision(number, step, time, previous, adopted, phase):
    point = {"compress_seconds": 0.011, "sync_seconds": 0.02, "gain": 0.8, "step_seconds": 0.09, "buffers": 2}
    yield {
        "record": "decision",
        "id": number,
        "step": step,
        "time": time,
        "trigger": "network",
        "changed": previous != adopted,
        "reason": f"latency rose to {phase[1] * 1e3:g} ms: {adopted} sends the least for what it lets through",
        "previous": {"name": previous},
        "adopted": {"name": adopted},
        "predicted_previous_seconds": 0.4,
        "predicted_seconds": 0.09,
        "inputs": {"latency": phase[1], "bandwidth": phase[2], "gain": 0.71, "revision": 3},
        "pareto": [{"plan": "0.011/all-gather"} | point, {"plan": "0.1/artopk-star-ring"} | point],
    }
    yield {
        "record": "measured",
        "id": number,
        "step": step + 20,
        "time": time + 2,
        "measured_previous_step_seconds": 0.43,
        "measured_step_seconds": 0.094,
        "num_steps": 10,
    }


def write_lines(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
