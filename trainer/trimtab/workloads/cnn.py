"""A CNN with batch norm on scikit-learn's handwritten digits: 0.5 million parameters, most of them in convolutions.

python -m trimtab.workloads.cnn --epochs 10
"""

from __future__ import annotations

import argparse
import os
from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import DataLoader

import trimtab
from trimtab.workloads.digits import IMAGE_SIDE, NUM_CLASSES, data, evaluate

CHANNELS = (1, 64, 128, 128, 256)


def model() -> nn.Module:
    """Make four convolutions, each with batch norm; the second halves the image's sides, the last starts at zero."""
    layers: list[nn.Module] = [nn.Unflatten(1, (1, IMAGE_SIDE))]
    for index, (before, after) in enumerate(pairwise(CHANNELS)):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        if index == 1:
            layers.append(nn.MaxPool2d(2))
    last = nn.Linear(CHANNELS[-1], NUM_CLASSES)
    nn.init.zeros_(last.weight)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


def main() -> None:
    """Train, evaluating every few steps."""
    parser = argparse.ArgumentParser(description="Train a CNN with batch norm on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16, help="images a rank")
    parser.add_argument("--learning-rate", type=float, default=0.003)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--evaluate-every", type=int, default=5, help="steps")
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("TRIMTAB_SEED", "1")), help="(default: the job's)"
    )
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train, held_out = data(args.seed)
    loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, drop_last=True)
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=args.learning_rate, momentum=args.momentum)
    session = trimtab.attach(network, optimizer)
    for _ in session.epochs(args.epochs):
        for images, labels in session.batches(loader):
            loss = nn.functional.cross_entropy(network(images), labels)
            loss.backward()
            session.step(loss)
            if session.rank == 0 and not session.in_trial and session.steps % args.evaluate_every == 0:
                accuracy, held_out_loss = evaluate(network, held_out)
                session.report(accuracy=accuracy, loss=held_out_loss)
    session.close()


if __name__ == "__main__":
    main()
