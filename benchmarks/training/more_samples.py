"""Adaptive's quality where it has more samples than dense: its held-out loss over dense's at the end of training.

    python benchmarks training/more_samples --seeds 3      # as root; some ten minutes

The job of char_gpt.yaml on four workers; adaptive on the network of narrow.yaml with 1.6 times dense's steps, and a
learning rate that falls over as many. Dense trains the same on any network, so it does it on this machine's own.

Needs root and /dev/net/tun; takes ten minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from results import record

HERE = Path(__file__).parent


def final_loss(folder: Path, plan: str, num_steps: int, seed: int) -> tuple[float, float]:
    """Of one run; and how many seconds it trained."""
    job: dict[str, Any] = yaml.safe_load((HERE / "char_gpt.yaml").read_text())
    spec = job["spec"]
    del spec["target"]
    spec["seed"] = seed
    spec["template"]["spec"]["containers"][0]["command"] = [
        *("python", str(HERE / "char_gpt.py"), f"--cosine-steps={num_steps}", "--epochs=9", "--evaluate-every=100")
    ]
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    network = ("--network", HERE / "narrow.yaml") if plan == "adaptive" else ()
    argv = ("trimtab", "run", folder / "job.yaml", "--out", folder / "run", "--plan", plan, *network)
    subprocess.run([sys.executable, "-m", *map(str, argv)], check=True, stdout=subprocess.DEVNULL, timeout=1800)
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    (loss,) = [line["final_loss"] for line in lines if "final_loss" in line]
    return loss, [line["time"] for line in lines if "step" in line][-1]


def main() -> None:
    """Print a line a run, and the median of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=320, help="dense's")
    parser.add_argument("--samples", type=float, default=1.6, help="adaptive's, over dense's")
    args = parser.parse_args()
    ratios = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        losses = []
        for plan, num_steps in (("dense", args.steps), ("adaptive", round(args.samples * args.steps))):
            with tempfile.TemporaryDirectory() as folder:
                loss, seconds = final_loss(Path(folder), plan, num_steps, seed)
            print(f"seed {seed}, {plan}: {num_steps} steps in {seconds:.0f} s, held-out loss {loss:.4f}", flush=True)
            losses.append(loss)
        ratios.append(losses[1] / losses[0])
    record("more-samples-loss", *ratios)
    print(f"adaptive over dense: {', '.join(f'{each:.4f}' for each in ratios)}; median {median(ratios):.4f}")


if __name__ == "__main__":
    main()
