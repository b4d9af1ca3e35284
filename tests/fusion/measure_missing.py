"""Do tensors that fusion leaves out cost accuracy? SAFusion's observations 1 and 2, on digits, in one process.

    python tests/fusion/measure_missing.py --seeds 3

Four ranks, error feedback, exact top-k at each density, in each tensor by itself (ahead of fusion) or in all of them as
one buffer (behind it, fusion degree 100%). Deep networks with norms: 38 tensors, from 64 to 65,536 elements. Minutes.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from statistics import mean

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

RANKS, BATCH, HELD_OUT = 4, 16, 360


def network(width: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(64, width)]
    for _ in range(depth):
        layers += [nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*layers, nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 10))


def select(filled: Tensor, bounds: list[int], density: float, ahead: bool) -> Tensor:
    """1 where an element of ``filled`` [rank, element] is sent."""
    mask = torch.zeros_like(filled)
    for begin, end in pairwise(bounds) if ahead else [(0, bounds[-1])]:
        k = max(1, round(density * (end - begin)))
        mask[:, begin:end].scatter_(1, filled[:, begin:end].abs().topk(k, dim=1).indices, 1.0)
    return mask


def missing(mask: Tensor, bounds: list[int]) -> float:
    """Tensors of which rank 0 sends nothing."""
    return mean(float(mask[0, begin:end].any() == 0) for begin, end in pairwise(bounds))


def train(args: argparse.Namespace, seed: int, density: float, ahead: bool) -> tuple[float, float, float]:
    """Held-out accuracy at the end, mean training loss of the last steps, mean missing rate."""
    torch.manual_seed(seed)
    data = load_digits()
    order = torch.randperm(len(data.target))
    inputs = torch.tensor(data.data, dtype=torch.float32)[order] / 16
    targets = torch.tensor(data.target)[order]
    held_out, inputs = (inputs[:HELD_OUT], targets[:HELD_OUT]), inputs[HELD_OUT:]
    targets = targets[HELD_OUT:]
    model = network(args.width, args.depth)
    parameters = list(reversed(list(model.parameters())))
    bounds = [0]
    for parameter in parameters:
        bounds.append(bounds[-1] + parameter.numel())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.rate, momentum=0.9)
    residual = torch.zeros(RANKS, bounds[-1])
    losses, rates = [], []
    for step in range(args.steps):
        loss_sum = 0.0
        for rank in range(RANKS):
            picked = torch.randint(len(targets), (BATCH,))
            loss = nn.functional.cross_entropy(model(inputs[picked]), targets[picked])
            gradients = torch.autograd.grad(loss, parameters)
            residual[rank] += torch.cat([gradient.flatten() for gradient in gradients])
            loss_sum += float(loss.detach())
        mask = torch.ones_like(residual) if density == 1 else select(residual, bounds, density, ahead)
        update = (residual * mask).mean(0)
        residual *= 1 - mask
        for parameter, (begin, end) in zip(parameters, pairwise(bounds), strict=True):
            parameter.grad = update[begin:end].view_as(parameter)
        optimizer.step()
        rates.append(missing(mask, bounds))
        if step >= args.steps - 50:
            losses.append(loss_sum / RANKS)
    with torch.no_grad():
        accuracy = float((model(held_out[0]).argmax(1) == held_out[1]).float().mean())
    return accuracy, mean(losses), mean(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.02)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{args.steps} steps, width {args.width}, depth {args.depth}, rate {args.rate}, {args.seeds} seeds.\n")
    print("| density | selection | accuracy | by seed | loss, last 50 steps | missing rate |")
    print("|---|---|---|---|---|---|")
    for density, ahead in (
        (1.0, True),
        (0.1, True),
        (0.1, False),
        (0.01, True),
        (0.01, False),
        (0.001, True),
        (0.001, False),
    ):
        found = [train(args, seed, density, ahead) for seed in range(args.seeds)]
        accuracies, losses, rates = zip(*found, strict=True)
        selection = "dense" if density == 1 else "ahead" if ahead else "behind"
        each = ", ".join(f"{accuracy:.3f}" for accuracy in accuracies)
        print(
            f"| {density:g} | {selection} | {mean(accuracies):.3f} | {each} | {mean(losses):.3f} | {mean(rates):.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
