"""What schemes do to the training of digits: accuracy, gain, and bytes a step. Ranks are threads of one process.

    python tests/collectives/measure_convergence.py 0.01/all-gather 0.01/spardl dense --ranks 4 6 --seeds 1 2 3

The model, its optimizer and its schedule are those of `trimtab.workloads.digits`, smaller by ``--hidden``.
"""

from __future__ import annotations

import argparse
from statistics import mean

import torch
from in_process import Ranks
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, Subset
from trimtab.plan import Plan
from trimtab.workloads import digits


def gradient(network: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Of one batch, flat and in backward order."""
    images, labels = batch
    network.zero_grad()
    nn.functional.cross_entropy(network(images), labels, label_smoothing=0.1).backward()
    return parameters_to_vector([each.grad for each in reversed(list(network.parameters()))])


def train(name: str, num_ranks: int, seed: int, epochs: int, hidden: int) -> tuple[float, float, float, int]:
    """Held-out accuracy at the end, mean gain, mean bytes that a rank sends a step, and steps."""
    torch.manual_seed(seed)
    train_set, held_out = digits.data(seed)
    network = digits.model(hidden)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.03, momentum=0.9)
    parts = [Subset(train_set, range(rank, len(train_set), num_ranks)) for rank in range(num_ranks)]
    loaders = [DataLoader(part, batch_size=16, shuffle=True, drop_last=True) for part in parts]
    num_steps = epochs * min(len(loader) for loader in loaders)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    ranks = Ranks(Plan.parse(name), num_ranks, sum(each.numel() for each in network.parameters()))
    gains, num_bytes = [], []
    for _ in range(epochs):
        for batches in zip(*loaders, strict=False):
            update, exchanged = ranks.exchange([gradient(network, batch) for batch in batches])
            offset = 0
            for parameter in reversed(list(network.parameters())):
                parameter.grad.copy_(update[offset : offset + parameter.numel()].view_as(parameter))
                offset += parameter.numel()
            optimizer.step()
            scheduler.step()
            after = sum(each.squared_norm_after for each in exchanged)
            gains.append(1 - after / sum(each.squared_norm_before for each in exchanged))
            num_bytes.append(mean(each.num_bytes for each in exchanged))
    ranks.close()
    return digits.evaluate(network, held_out)[0], mean(gains[len(gains) // 4 :]), mean(num_bytes), len(gains)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="+", help="such as dense or 0.01/all-gather")
    parser.add_argument("--ranks", type=int, nargs="+", default=[4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| ranks | plan | accuracy by seed, % | mean | gain | kB a step | steps |\n|---|---|---|---|---|---|---|")
    for num_ranks in args.ranks:
        for name in args.plans:
            runs = [train(name, num_ranks, seed, args.epochs, args.hidden) for seed in args.seeds]
            accuracies, gains, num_bytes, steps = zip(*runs, strict=True)
            print(
                f"| {num_ranks} | `{name}` | {', '.join(f'{100 * each:.1f}' for each in accuracies)} "
                f"| {100 * mean(accuracies):.1f} | {mean(gains):.3f} | {mean(num_bytes) / 1e3:.0f} | {steps[0]} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
