"""How many more steps than dense error feedback needs, in one process.

docs/explanation/convergence-under-compression.md has the model that follows from it.

    python benchmarks training/staleness --hidden 512 --rate 0.03 --seeds 2
    python benchmarks training/staleness --hidden 512 --rate 0.001 --seeds 2 --optimizer adam

Exact top-k on every rank of four, or on one rank in turns for all. Minutes on one core, and no network.

Needs nothing more; takes ten minutes.
"""

from __future__ import annotations

import argparse
from math import sqrt
from statistics import mean

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

RANKS, BATCH, HELD_OUT, LOOK_EVERY = 4, 16, 360, 5
LOSSES = (1.0, 0.5, 0.3, 0.2)
#: Ratio, and whether one rank selects for all.
OPTIMIZERS = {
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
    "adam": lambda parameters, rate: torch.optim.Adam(parameters, lr=rate),
}
PLANS = ((0.1, False), (0.03, False), (0.01, False), (0.001, False), (0.1, True), (0.01, True), (0.001, True))


def exchange(filled: Tensor, ratio: float, chooser: int | None) -> tuple[Tensor, Tensor, float]:
    """The ranks' error-fed gradients ``[rank, element]`` to their mean update, their residuals and the gain.

    All elements are sent at a ratio of 1; else the largest of each rank, or those that ``chooser`` selects for all.
    """
    if ratio == 1:
        return filled.mean(0), torch.zeros_like(filled), 1.0
    count = max(1, int(ratio * filled.shape[1]))
    mask = torch.zeros_like(filled)
    if chooser is None:
        mask.scatter_(1, filled.abs().topk(count, dim=1).indices, 1.0)
    else:
        mask[:, filled[chooser].abs().topk(count).indices] = 1.0
    sent = filled * mask
    return sent.mean(0), filled - sent, float(sent.square().sum() / filled.square().sum())


def train(
    optimizer_name: str, rate: float, hidden: int, seed: int, ratio: float, shared: bool, steps: int
) -> tuple[list[int], float]:
    """Steps to each of `LOSSES` that was reached, and the mean of the residual's norm over that of what was sent."""
    torch.manual_seed(seed)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    images -= images.mean(0)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    training, held = order[HELD_OUT:], order[:HELD_OUT]
    model = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    parameters = list(model.parameters())
    optimizer = OPTIMIZERS[optimizer_name](parameters, rate)
    draws = torch.Generator().manual_seed(seed)
    residual = torch.zeros(RANKS, sum(each.numel() for each in parameters))
    reached: list[int] = []
    relative_norms = []
    for step in range(steps):
        gradients = []
        for _ in range(RANKS):
            batch = training[torch.randint(len(training), (BATCH,), generator=draws)]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            gradients.append(torch.cat([each.grad.flatten() for each in parameters]))
        update = torch.stack(gradients)
        update, residual, gain = exchange(update + residual, ratio, step % RANKS if shared else None)
        relative_norms.append(sqrt(1 / gain - 1))
        for each, piece in zip(parameters, update.split([each.numel() for each in parameters]), strict=True):
            each.grad = piece.view_as(each).clone()
        optimizer.step()
        if (step + 1) % LOOK_EVERY == 0:
            with torch.no_grad():
                loss = float(nn.functional.cross_entropy(model(images[held]), labels[held]))
            while len(reached) < len(LOSSES) and loss <= LOSSES[len(reached)]:
                reached.append(step + 1)
            if len(reached) == len(LOSSES):
                break
    return reached, mean(relative_norms)


def main() -> None:
    """Print dense's steps, and how many more each plan needs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--rate", type=float, default=0.03, help="learning rate")
    parser.add_argument("--hidden", type=int, default=512, help="width of the perceptron's two layers")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1500, help="the most that a run may take")
    wanted = parser.parse_args()
    torch.set_num_threads(1)

    def steps_and_norm(ratio: float, shared: bool) -> tuple[list[float], float]:
        runs = [
            train(wanted.optimizer, wanted.rate, wanted.hidden, seed, ratio, shared, wanted.steps)
            for seed in range(wanted.seeds)
        ]
        return [mean(steps) for steps in zip(*(steps for steps, _ in runs), strict=False)], mean(x for _, x in runs)

    dense, _ = steps_and_norm(1, False)
    print(f"dense needs {dense} steps to losses of {LOSSES}")
    for ratio, shared in PLANS:
        steps, norm = steps_and_norm(ratio, shared)
        more = [one - other for one, other in zip(steps, dense, strict=False)]
        print(f"{ratio} selected by {'one for all' if shared else 'each rank'}: x {norm:.1f}, {more} steps more")


if __name__ == "__main__":
    main()
