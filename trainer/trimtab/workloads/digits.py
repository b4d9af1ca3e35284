"""Handwritten digits: a real model of 8.4 million parameters on scikit-learn's 1,797 images.

The data ship with scikit-learn, so nothing is downloaded; a fifth is held out. The network is far larger than the task
asks for, so that communication matters as it does for the models that people really train.

    python -m trimtab.workloads.digits --epochs 10
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import trimtab

try:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ModuleNotFoundError:
    raise SystemExit("trimtab: this workload needs scikit-learn; pip install 'trimtab[workloads]'") from None

NUM_CLASSES = 10
IMAGE_SIDE = 8
BRIGHTEST = 16.0


def model(hidden: int) -> nn.Module:
    """Make two convolutions and two linear layers; ``hidden`` = 2048 makes 8.4 million parameters.

    He et al.'s initialisation, and a last layer that starts at zero: the target is crossed while accuracy still climbs
    steeply, so the time to it is a figure and not a toss.
    """
    last = nn.Linear(hidden, NUM_CLASSES)
    network = nn.Sequential(
        nn.Unflatten(1, (1, IMAGE_SIDE)),
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * IMAGE_SIDE * IMAGE_SIDE, hidden),
        nn.ReLU(),
        last,
    )
    for layer in network:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    nn.init.zeros_(last.weight)
    return network


def data(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Return training and held-out images, float32 [n, 8, 8] in [0, 1], and labels int64 [n]; stratified."""
    images, labels = load_digits(return_X_y=True)
    images = (images / BRIGHTEST).astype(np.float32).reshape(-1, IMAGE_SIDE, IMAGE_SIDE)
    parts = train_test_split(images, labels, test_size=0.2, random_state=seed, stratify=labels)
    train_x, held_x, train_y, held_y = (torch.from_numpy(part) for part in parts)
    return TensorDataset(train_x, train_y.long()), TensorDataset(held_x, held_y.long())


def evaluate(network: nn.Module, held_out: TensorDataset) -> tuple[float, float]:
    """Return accuracy and mean loss on the held-out images."""
    device = next(network.parameters()).device
    images, labels = (each.to(device) for each in held_out.tensors)
    network.eval()
    with torch.no_grad():
        logits: Tensor = network(images)
        loss = nn.functional.cross_entropy(logits, labels)
    network.train()
    return float((logits.argmax(1) == labels).float().mean()), float(loss)


def main() -> None:
    """Train, evaluating every few steps."""
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16, help="images a rank")
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--learning-rate", type=float, default=0.03)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--evaluate-every", type=int, default=5, help="steps between evaluations")
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("TRIMTAB_SEED", "1")), help="(default: the job's)"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    device = torch.device("cpu" if args.device == "cpu" else f"cuda:{os.environ.get('LOCAL_RANK', '0')}")

    torch.manual_seed(args.seed)
    train, held_out = data(args.seed)
    loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, drop_last=True)
    network = model(args.hidden).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=args.learning_rate, momentum=args.momentum, fused=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    num_steps = args.epochs * len(train) // (args.batch_size * int(os.environ.get("WORLD_SIZE", "1")))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, num_steps))
    session = trimtab.attach(network, optimizer, scheduler=scheduler, scheduler_interval="step")
    for _ in session.epochs(args.epochs):
        for images, labels in session.batches(loader):
            loss = criterion(network(images.to(device)), labels.to(device))
            loss.backward()
            session.step(loss)
            if session.rank == 0 and not session.in_trial and session.steps % args.evaluate_every == 0:
                accuracy, held_out_loss = evaluate(network, held_out)
                session.report(accuracy=accuracy, loss=held_out_loss)
    if session.rank == 0:
        accuracy, held_out_loss = evaluate(network, held_out)
        session.report(accuracy=accuracy, loss=held_out_loss)
    session.close()


if __name__ == "__main__":
    main()
