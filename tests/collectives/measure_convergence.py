"""What schemes do to the training of digits: accuracy, lag, gain, and bytes. Ranks are threads of one process.

    python tests/collectives/measure_convergence.py 0.01/all-gather 0.01/spardl dense --ranks 4 6 --seeds 1 2 3

The lag is by how many steps the training loss reaches the levels of dense's later, where dense comes first. The model,
its optimizer and its schedule are those of `trimtab.workloads.digits`, smaller by ``--hidden``.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, Subset
from trimtab.plan import Plan
from trimtab.workloads import digits

sys.path.insert(0, str(Path(__file__).parents[1]))
from in_process import Ranks

#: Share of the last loss in the running mean.
NEWEST = 0.2


@dataclass
class Run:
    """What one training gave."""

    accuracy: float = 0.0
    """Held out, at the end."""
    losses: list[float] = field(default_factory=list)
    """Running mean of the training loss, by step."""
    gains: list[float] = field(default_factory=list)
    num_bytes: list[float] = field(default_factory=list)
    """That a rank sent, by step."""

    def lag(self, dense: Run) -> float:
        """Steps behind ``dense``, in the mean over nine levels of its loss, of those that both reached."""
        first, last = dense.losses[len(dense.losses) // 10], max(dense.losses[-1], self.losses[-1])
        levels = [first + (last - first) * i / 10 for i in range(1, 10)]
        return mean(self._step_at(level) - dense._step_at(level) for level in levels)

    def _step_at(self, level: float) -> int:
        return next(step for step, loss in enumerate(self.losses) if loss <= level)


def gradient(network: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, float]:
    """Of one batch, flat and in backward order; and the loss."""
    images, labels = batch
    network.zero_grad()
    loss = nn.functional.cross_entropy(network(images), labels, label_smoothing=0.1)
    loss.backward()
    return parameters_to_vector([each.grad for each in reversed(list(network.parameters()))]), loss.item()


def train(name: str, num_ranks: int, seed: int, epochs: int, hidden: int) -> Run:
    """Train under a plan."""
    torch.manual_seed(seed)
    train_set, held_out = digits.data(seed)
    network = digits.model(hidden)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.03, momentum=0.9)
    parts = [Subset(train_set, range(rank, len(train_set), num_ranks)) for rank in range(num_ranks)]
    loaders = [DataLoader(part, batch_size=16, shuffle=True, drop_last=True) for part in parts]
    num_steps = epochs * min(len(loader) for loader in loaders)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    ranks = Ranks(Plan.parse(name), num_ranks, sum(each.numel() for each in network.parameters()))
    run = Run()
    for _ in range(epochs):
        for batches in zip(*loaders, strict=False):
            grads, losses = zip(*(gradient(network, batch) for batch in batches), strict=True)
            update, exchanged = ranks.exchange(grads)
            offset = 0
            for parameter in reversed(list(network.parameters())):
                parameter.grad.copy_(update[offset : offset + parameter.numel()].view_as(parameter))
                offset += parameter.numel()
            optimizer.step()
            scheduler.step()
            after = sum(each.squared_norm_after for each in exchanged)
            run.gains.append(1 - after / sum(each.squared_norm_before for each in exchanged))
            run.num_bytes.append(mean(each.num_bytes for each in exchanged))
            before = run.losses[-1] if run.losses else mean(losses)
            run.losses.append((1 - NEWEST) * before + NEWEST * mean(losses))
    ranks.close()
    run.accuracy = digits.evaluate(network, held_out)[0]
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="+", help="such as dense or 0.01/all-gather")
    parser.add_argument("--ranks", type=int, nargs="+", default=[4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| ranks | plan | accuracy by seed, % | mean | lag | gain | kB a step | steps |\n|" + "---|" * 8)
    for num_ranks in args.ranks:
        dense: list[Run] = []
        for name in args.plans:
            runs = [train(name, num_ranks, seed, args.epochs, args.hidden) for seed in args.seeds]
            dense = dense or runs
            lag = mean(run.lag(beside) for run, beside in zip(runs, dense, strict=True))
            num_steps = len(runs[0].gains)
            gain = mean(mean(run.gains[num_steps // 4 :]) for run in runs)
            print(
                f"| {num_ranks} | `{name}` | {', '.join(f'{100 * run.accuracy:.1f}' for run in runs)} "
                f"| {100 * mean(run.accuracy for run in runs):.1f} | {lag:.1f} | {gain:.3f} "
                f"| {mean(mean(run.num_bytes) for run in runs) / 1e3:.0f} | {num_steps} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
