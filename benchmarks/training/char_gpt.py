"""The job of char_gpt.yaml: the character GPT of examples/char_lm.py under AdamW, to a held-out loss.

trimtab compare benchmarks/training/char_gpt.yaml --network benchmarks/training/narrow.yaml --until-target \
      --plans adaptive,dense,0.1/all-gather --out runs/gpt
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

import torch
import trimtab
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from char_lm import GPT, Text, cross_entropy, evaluate, read_library


def main() -> None:
    """Train, and report the held-out loss every few steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8, help="windows a rank")
    parser.add_argument("--text-bytes", type=int, default=800_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--cosine-steps", type=int, help="end after so many, over which the learning rate falls to 0")
    parser.add_argument("--held-out-windows", type=int, default=96)
    parser.add_argument("--evaluate-every", type=int, default=10, help="steps")
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("TRIMTAB_SEED", "0")), help="(default: the job's)"
    )
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_text, held_out_text = read_library(args.seed, args.text_bytes)
    held_out = Text(held_out_text, args.context)
    loader = DataLoader(Text(train_text, args.context), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = GPT(args.context, args.width, args.layers, num_heads=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    session = trimtab.attach(model, optimizer)
    num_steps = args.cosine_steps or args.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / num_steps)) / 2 if args.cosine_steps else 1.0
    )
    for _ in range(args.epochs):
        for inputs, targets in session.batches(loader):
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), targets)
            loss.backward()
            session.step(loss)
            if not session.in_trial:
                scheduler.step()
            if session.rank == 0 and not session.in_trial and session.steps % args.evaluate_every == 0:
                session.report(loss=evaluate(model, held_out, args.held_out_windows)[0])
            if not session.in_trial and session.steps >= num_steps:
                break
    if session.rank == 0:
        session.report(final_loss=evaluate(model, held_out, 16 * args.held_out_windows)[0])
    session.close()


if __name__ == "__main__":
    main()
