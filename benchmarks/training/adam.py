"""How many times dense's steps Adam needs under error feedback, in one process.

docs/explanation/convergence-under-compression.md has the model that follows from it.

    python benchmarks training/adam --ratios 1 0.1 0.01 --shared 0.1 --width 192 --layers 3

Four ranks train the character GPT of examples/char_lm.py by AdamW, with exact top-k on every rank, or on one rank in
turns for all, and the conserving error feedback of `staleness`. A line for each plan: the step at which the
held-out loss first fell to each of `LOSSES`, and the residual's relative norm. Minutes on one core, and no network.

Needs nothing more; takes three minutes a plan.
"""

from __future__ import annotations

import argparse
import time
from math import sqrt
from statistics import mean, median

import torch
from char_lm import GPT, Text, cross_entropy, read_library
from staleness import RANKS, exchange
from torch import Tensor

CONTEXT, HEADS, HELD_OUT_WINDOWS, LOOK_EVERY, AVERAGED_LOOKS = 64, 4, 96, 5, 3
LOSSES = (2.7, 2.5, 2.4, 2.28, 2.15, 2.0)
OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
}


def train(wanted: argparse.Namespace, ratio: float, shared: bool, seed: int) -> tuple[list[int], float, float]:
    """Steps to each of `LOSSES` that was reached, the mean of the residual's relative norm, and of the gain.

    Held-out losses are averaged over the last looks: a single one crosses a level by luck.
    """
    torch.manual_seed(seed)
    train_text, held_out_text = read_library(seed, wanted.text_bytes)
    windows, held = Text(train_text, CONTEXT), Text(held_out_text, CONTEXT)
    held_inputs, held_targets = _stack(held, range(HELD_OUT_WINDOWS))
    model = GPT(CONTEXT, wanted.width, wanted.layers, HEADS)
    parameters = list(model.parameters())
    sizes = [each.numel() for each in parameters]
    optimizer = OPTIMIZERS[wanted.optimizer](parameters, lr=wanted.rate)
    draws = torch.Generator().manual_seed(seed)
    residual = torch.zeros(RANKS, sum(sizes))
    reached: list[int] = []
    losses: list[float] = []
    gains: list[float] = []
    for step in range(1, wanted.steps + 1):
        gradients = []
        for _ in range(RANKS):
            batch = torch.randint(len(windows), (wanted.batch,), generator=draws).tolist()
            inputs, targets = _stack(windows, batch)
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            gradients.append(torch.cat([each.grad.flatten() for each in parameters]))
        update = torch.stack(gradients)
        update, residual, gain = exchange(update + residual, ratio, step % RANKS if shared else None)
        gains.append(gain)
        for each, piece in zip(parameters, update.split(sizes), strict=True):
            each.grad = piece.view_as(each).clone()
        optimizer.step()
        if step % LOOK_EVERY == 0:
            with torch.no_grad():
                losses.append(float(cross_entropy(model(held_inputs), held_targets)))
            loss = mean(losses[-AVERAGED_LOOKS:])
            while len(reached) < len(LOSSES) and loss <= LOSSES[len(reached)]:
                reached.append(step)
            if len(reached) == len(LOSSES) or loss <= wanted.until:
                break
    norms = [sqrt(1 / gain - 1) for gain in gains]
    return reached, median(norms), median(gains)


def _stack(text: Text, indices: list[int] | range) -> tuple[Tensor, Tensor]:
    inputs, targets = zip(*(text[index] for index in indices), strict=True)
    return torch.stack(inputs), torch.stack(targets)


def main() -> None:
    """A line for each plan and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratios", type=float, nargs="*", default=[1, 0.1, 0.01, 0.001], help="each rank selects")
    parser.add_argument("--shared", type=float, nargs="*", default=[], help="ratios at which one rank selects for all")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8, help="windows a rank")
    parser.add_argument("--text-bytes", type=int, default=800_000)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--steps", type=int, default=1500, help="the most that a run may take")
    parser.add_argument("--until", type=float, default=2.28, help="held-out loss at which a run ends")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    print(f"steps to held-out losses of {LOSSES}: {vars(wanted)}", flush=True)
    for seed in wanted.seeds:
        for ratio, shared in [(ratio, False) for ratio in wanted.ratios] + [(ratio, True) for ratio in wanted.shared]:
            began = time.monotonic()
            steps, norm, gain = train(wanted, ratio, shared, seed)
            print(
                f"seed {seed}, {ratio:g} selected by {'one for all' if shared else 'each rank'}: {steps}, "
                f"x {norm:.2f}, gain {gain:.3f}; {time.monotonic() - began:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
