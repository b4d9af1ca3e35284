"""A small real training for Prometheus to look at. It reports an accuracy every few steps, and never ends.

`python small_training.py DIRECTORY [--rest=SECONDS] [--width=NEURONS]`. While the directory holds a file `not-finite`,
every second step has no finite gradient; `slow`, each takes a second longer; `stalled`, training does not go on.
`--rest`: a step takes so much longer, and no processor.
"""

import argparse
import itertools
import time
from pathlib import Path

import torch
import trimtab
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(directory: Path, rest: float, width: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.05))
    data = TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
    numbers = itertools.count()
    while True:
        for inputs, labels in session.batches(DataLoader(data, batch_size=16, shuffle=True)):
            time.sleep(1.0 if (directory / "slow").exists() else rest)
            outputs = model(inputs)
            loss = nn.functional.cross_entropy(outputs, labels)
            if next(numbers) % 2 and (directory / "not-finite").exists():
                loss = loss * torch.nan
            while (directory / "stalled").exists():
                time.sleep(0.05)
            loss.backward()
            session.step(loss)
        session.report(accuracy=(outputs.argmax(1) == labels).float().mean().item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rest", type=float, default=0.0)
    parser.add_argument("--width", type=int, default=400)
    arguments = parser.parse_args()
    main(arguments.directory, arguments.rest, arguments.width)
