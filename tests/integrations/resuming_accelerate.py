"""Trains by accelerate as a whole, and again in two parts; writes both models' weights."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import trimtab
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from plans import data, make_model
from torch import nn
from torch.utils.data import DataLoader
from trimtab.integrations.accelerate import keep_exchange

EPOCHS, STOP = 4, 2
OUT = Path(sys.argv[1])


def train(folder: str, first: int, last: int) -> list[float]:
    torch.manual_seed(1)
    seedable = DataLoaderConfiguration(use_seedable_sampler=True)  # else accelerate does not keep the order of epochs
    accelerator, model = Accelerator(cpu=True, dataloader_config=seedable), make_model()
    model.insert(2, nn.Dropout(0.2))  # accelerate keeps the generators
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(data(), batch_size=16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    session = trimtab.attach(model, optimizer, plan="0.05/all-gather", run_directory=OUT / f"run-{folder}-{first}")
    keep_exchange(accelerator, session)
    if first:
        accelerator.load_state(str(OUT / folder))
        assert session.steps == first * len(loader)
    for epoch in range(first, last):
        loader.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
    if last == STOP:
        accelerator.save_state(str(OUT / folder))
    session.close()
    accelerator.free_memory()
    return [float(parameter.detach().double().sum()) for parameter in model.parameters()]


def main() -> None:
    whole = train("whole", 0, EPOCHS)
    train("parts", 0, STOP)
    resumed = train("parts", STOP, EPOCHS)
    (OUT / f"rank-{os.environ['RANK']}.json").write_text(json.dumps([whole, resumed]))


if __name__ == "__main__":
    main()
