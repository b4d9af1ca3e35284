"""Convergence and gain of collectives on digits, in one process: the table of docs/measurements/schemes.md.

    python tests/collectives/measure_sums.py --ranks 4 --seeds 3
    python tests/collectives/measure_sums.py --ranks 6 --seeds 3 --plans dense,0.01/all-gather,0.01/ok-topk

Real schemes on ranks that are threads, over queues in place of a network: no time is measured. Minutes on one core.
"""

from __future__ import annotations

import argparse
from copy import deepcopy
from statistics import mean

import torch
from on_ranks import Member, on_ranks, run
from sklearn.datasets import load_digits
from torch import Tensor, nn
from trimtab import sparsify
from trimtab.collectives.base import Exchange
from trimtab.plan import Plan, elements_to_send

BATCH, HELD_OUT, HIDDEN = 16, 360, 128
PLANS = (
    "dense,dense/wire=bfloat16,0.01/all-gather,0.01/artopk-star-ring,0.01/topk-dsa,0.01/ok-topk,0.01/gtopk,"
    "0.01/gtopk:residual=paper"
)


def digits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Images and labels to train on, and those held out."""
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    training, held = order[HELD_OUT:], order[:HELD_OUT]
    mean_image = images[training].mean(0)
    return (images[training] - mean_image, labels[training]), (images[held] - mean_image, labels[held])


def perceptron(seed: int) -> nn.Module:
    """Of 26 thousand parameters."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))


def train(
    member: Member, text: str, start: nn.Module, seed: int, steps: int, rate: float
) -> tuple[float, float, list[tuple[float, float]]]:
    """Accuracy and loss on what is held out, and the squared norms before and after each exchange on this rank."""
    (images, labels), (held_images, held_labels) = digits()
    plan, scheme = Plan.parse(text), member.make(Plan.parse(text).collective)
    selector = None if plan.is_dense else sparsify.create("topk")
    model = deepcopy(start)
    parameters = list(model.parameters())
    sizes = [each.numel() for each in parameters]
    n = sum(sizes)
    optimizer = torch.optim.SGD(parameters, lr=rate, momentum=0.9)
    draws = torch.Generator().manual_seed(1000 * seed + member.rank)
    residual, norms = torch.zeros(n), []
    for step in range(steps):
        batch = torch.randint(len(images), (BATCH,), generator=draws)
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        grad = torch.cat([each.flatten() for each in torch.autograd.grad(loss, parameters)])
        next_residual, out = torch.empty(n), torch.empty(n)
        k = elements_to_send(plan.ratio, n)
        exchange = Exchange(grad, residual, next_residual, out, (0, n), (k,), step, wire=plan.wire)
        exchanged = run(scheme, exchange, selector)
        scheme.commit()
        residual = next_residual
        norms.append((exchanged.squared_norm_before, exchanged.squared_norm_after))
        for each, piece in zip(parameters, out.split(sizes), strict=True):
            each.grad = piece.view_as(each)
        optimizer.step()
    with torch.no_grad():
        logits = model(held_images)
    accuracy = float((logits.argmax(1) == held_labels).float().mean())
    return accuracy, float(nn.functional.cross_entropy(logits, held_labels)), norms


def main() -> None:
    """Print a row for each plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.03)
    parser.add_argument("--plans", default=PLANS)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    print("| plan | accuracy | of each seed | loss | gain |\n|---|---|---|---|---|")
    for text in wanted.plans.split(","):
        accuracies, losses, gains = [], [], []
        for seed in range(wanted.seeds):
            ranks = on_ranks(wanted.ranks, train, text, perceptron(seed), seed, wanted.steps, wanted.rate)
            accuracies.append(ranks[0][0])
            losses.append(ranks[0][1])
            later = [norms[wanted.steps // 3 :] for *_, norms in ranks]
            before, after = (sum(norms[i] for rank in later for norms in rank) for i in (0, 1))
            gains.append(1 - after / before)
        each = ", ".join(f"{100 * accuracy:.1f}" for accuracy in accuracies)
        print(
            f"| {text} | {100 * mean(accuracies):.1f}% | {each} | {mean(losses):.3f} | {mean(gains):.4f} |", flush=True
        )


if __name__ == "__main__":
    main()
