"""A small real training for Prometheus to look at. It reports an accuracy every few steps, and never ends.

`python small_training.py DIRECTORY`. While the directory holds a file `not-finite`, every second step has no finite
gradient; while it holds `stalled`, training does not go on.
"""

import itertools
import sys
import time
from pathlib import Path

import torch
import trimtab
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(directory: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))
    session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.05))
    data = TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
    numbers = itertools.count()
    while True:
        for inputs, labels in session.batches(DataLoader(data, batch_size=16, shuffle=True)):
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
    main(Path(sys.argv[1]))
