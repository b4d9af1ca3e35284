"""Train digits under each plan, its ranks simulated in one process, and print what became of it.

    .venv/bin/python tests/collectives/measure_schemes.py dense 0.01/all-gather 0.01/exdyna --ranks 4 --seeds 1 2 3

Accuracy is held-out, the gain the mean over the second half of the steps. The figures are kept in
docs/measurements/schemes.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from trimtab.collectives import Exchanged
from trimtab.plan import Plan
from trimtab.workloads import digits

sys.path.insert(0, str(Path(__file__).parents[1]))
from in_process import Ranks


@dataclass(frozen=True)
class Training:
    """One run: SGD with momentum, and the learning rate of the workload."""

    ranks: int
    hidden: int
    steps: int
    batch_size: int = 16
    learning_rate: float = 0.03

    def run(self, plan: Plan, seed: int) -> Iterator[tuple[Ranks, list[Exchanged], nn.Module]]:
        """What the ranks hold and say after each step; last of all the trained network."""
        torch.manual_seed(seed)
        network = digits.model(self.hidden)
        images, labels = digits.data(seed)[0].tensors
        parameters = list(network.parameters())[::-1]
        sizes = [parameter.numel() for parameter in parameters]
        optimizer = torch.optim.SGD(parameters, lr=self.learning_rate, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        ranks = Ranks(plan, self.ranks, sum(sizes))
        random, left = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        for _ in range(self.steps):
            if len(left) < self.ranks * self.batch_size:
                left = torch.randperm(len(images), generator=random)
            taken, left = left[: self.ranks * self.batch_size], left[self.ranks * self.batch_size :]
            grads = []
            for batch in taken.split(self.batch_size):
                own = torch.autograd.grad(criterion(network(images[batch]), labels[batch]), parameters)
                grads.append(torch.cat([grad.flatten() for grad in own]))
            update, exchanged = ranks.exchange(grads)
            for parameter, part in zip(parameters, update.split(sizes), strict=True):
                parameter.grad = part.view_as(parameter)
            optimizer.step()
            schedule.step()
            yield ranks, exchanged, network
        ranks.close()


def main() -> None:
    """Print a row for each plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="+")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128, help="128 makes 0.54 million parameters")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    training = Training(arguments.ranks, arguments.hidden, arguments.steps)
    print("| plan | ranks | accuracy of each seed | loss | gain | bytes a rank and step | messages |")
    print("|---|---|---|---|---|---|---|")
    for text in arguments.plans:
        accuracies, losses, gains = [], [], []
        for seed in arguments.seeds:
            for step, (_, exchanged, trained) in enumerate(training.run(Plan.parse(text), seed)):
                network = trained
                if step >= arguments.steps // 2:
                    after = sum(each.squared_norm_after for each in exchanged)
                    gains.append(1 - after / sum(each.squared_norm_before for each in exchanged))
            accuracy, loss = digits.evaluate(network, digits.data(seed)[1])
            accuracies.append(f"{100 * accuracy:.1f}%")
            losses.append(loss)
        sent = statistics.mean(each.num_bytes for each in exchanged)
        print(
            f"| {text} | {arguments.ranks} | {', '.join(accuracies)} | {statistics.mean(losses):.3f} |"
            f" {statistics.mean(gains):.3f} | {sent:,.0f} | {exchanged[0].num_messages} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
