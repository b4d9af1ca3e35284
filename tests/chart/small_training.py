"""A small real training for Prometheus to look at. It reports an accuracy every few steps, and never ends."""

import torch
import trimtab
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))
    session = trimtab.attach(model, torch.optim.SGD(model.parameters(), lr=0.05))
    data = TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
    while True:
        for inputs, labels in session.batches(DataLoader(data, batch_size=16, shuffle=True)):
            outputs = model(inputs)
            loss = nn.functional.cross_entropy(outputs, labels)
            loss.backward()
            session.step(loss)
        session.report(accuracy=(outputs.argmax(1) == labels).float().mean().item())


if __name__ == "__main__":
    main()
