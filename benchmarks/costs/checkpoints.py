"""What checkpoints cost a training step, beside torch.distributed.checkpoint's `async_save` of the same model.

    python benchmarks costs/checkpoints --out runs/checkpoints.json

ResNet-18 (11.7 million parameters) trains on ranks that share this machine. It is saved to a local directory by either
in turns, while training goes on. Ours also holds what compression held back, of every rank. All ratios are of one run.
The overhead is of one checkpoint a minute: its pause, and what the steps beside its write take longer. If the machine
does other work meanwhile, that is mostly noise; the processor seconds of a rank beyond its steps are not.

Needs torchvision and a gigabyte of disk; takes five minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import checkpoint_ranks
from kit import rank_pool
from results import keep, record


def result_of(ranks: list[dict[str, Any]], resume: list[dict[str, float]], folder: Path, steps: int) -> dict[str, Any]:
    """Return the figures of a run: medians over rounds, of the slowest rank."""
    step = max(rank["step"] for rank in ranks)
    told: dict[str, Any] = {"step_seconds": step}
    for name in ("trimtab", "torch"):
        pause = max(statistics.median(rank[name]["pause"]) for rank in ranks)
        beside = max(statistics.median(rank[name]["beside"]) for rank in ranks)
        lost = pause + steps * max(0.0, beside - step)
        at = max((folder / name).iterdir(), key=lambda path: path.stat().st_mtime)
        told[name] = {
            "pause_seconds": pause,
            "pause_steps": pause / step,
            "save_seconds": max(statistics.median(rank[name]["write"]) for rank in ranks),
            "resume_seconds": max(each[name] for each in resume),
            "bytes": sum(path.stat().st_size for path in at.rglob("*")),
            "processor_seconds": max(statistics.median(rank[name]["processor"]) - rank["processor"] for rank in ranks),
            "overhead_at_one_a_minute": lost / 60.0,
        }
    return told


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16, help="samples of a rank")
    parser.add_argument("--pixels", type=int, default=96, help="of a side of an image")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="steps beside each write; it must end within them")
    parser.add_argument("--out", type=Path, help="the file of the result, JSON; else it is printed")
    args = parser.parse_args()
    rank_pool.SECONDS_TO_ANSWER = 1800.0
    pool = rank_pool.RankPool(deadline=300.0)
    try:
        with tempfile.TemporaryDirectory() as path:
            folder, sizes = Path(path), (args.batch, args.pixels)
            ranks = pool.run_in_process_group(
                args.ranks, checkpoint_ranks.measure, folder, *sizes, args.rounds, args.steps
            )
            resume = pool.run_in_process_group(args.ranks, checkpoint_ranks.resumed, folder, *sizes)
            told = {"ranks": args.ranks, **result_of(ranks, resume, folder, args.steps)}
    finally:
        pool.close()
    ours = told["trimtab"]
    record("checkpoint-pause", 100 * ours["pause_steps"])
    record("checkpoint-overhead", 100 * ours["overhead_at_one_a_minute"])
    keep(**told)
    text = json.dumps(told, indent=2)
    print(text)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
