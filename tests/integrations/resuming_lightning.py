"""Trains by Lightning's Trainer as a whole, and again in two parts; writes both models' weights."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from plans import NUM_NODES, data
from trimtab.integrations.lightning import TrimtabCallback
from with_lightning import Classifier

EPOCHS, STOP = 4, 2
OUT = Path(sys.argv[1])


def train(folder: str, epochs: int, resumed: str | None = None) -> list[float]:
    torch.manual_seed(1)
    kept = ModelCheckpoint(OUT / folder, filename="{epoch}", save_last=True)
    run = f"{folder}-{epochs}"
    trainer = Trainer(
        accelerator="cpu",
        devices=2 // NUM_NODES,
        num_nodes=NUM_NODES,
        strategy="ddp",
        max_epochs=epochs,
        callbacks=[TrimtabCallback(plan="0.05/all-gather", run_directory=str(OUT / f"run-{run}")), kept],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Classifier(run)
    trainer.fit(module, torch.utils.data.DataLoader(data(), batch_size=16, shuffle=True), ckpt_path=resumed)
    assert "save_checkpoint" not in vars(trainer), "the Trainer is as it was"
    return [float(parameter.detach().double().sum()) for parameter in module.parameters()]


def main() -> None:
    whole = train("whole", EPOCHS)
    train("parts", STOP)
    resumed = train("parts", EPOCHS, str(OUT / "parts" / "last.ckpt"))
    (OUT / f"rank-{os.environ['RANK']}.json").write_text(json.dumps([whole, resumed]))


if __name__ == "__main__":
    main()
