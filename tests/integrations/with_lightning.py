"""A script for Lightning; a callback adopts it. It trains as it was, and under each plan."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from plans import NUM_NODES, PLANS, choose, data, make_model, run_directory, say, say_weights
from torch import Tensor, nn
from trimtab.integrations.lightning import TrimtabCallback


class Classifier(LightningModule):
    def __init__(self, plan: str) -> None:
        super().__init__()
        self.net, self.plan = make_model(), plan

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.net(inputs), targets)
        say(self.plan, "loss", loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


def main(plan: str) -> None:
    choose(plan)
    torch.manual_seed(1)
    trainer = Trainer(
        accelerator="cpu",
        devices=2 // NUM_NODES,
        num_nodes=NUM_NODES,
        strategy="ddp",
        max_epochs=6,
        callbacks=[] if plan == "own" else [TrimtabCallback(run_directory=run_directory(plan))],
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Classifier(plan)
    trainer.fit(module, torch.utils.data.DataLoader(data(), batch_size=16, shuffle=True))
    say_weights(plan, module)


if __name__ == "__main__":
    for each in PLANS:
        main(each)
