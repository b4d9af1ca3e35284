"""A script for Lightning; a callback adopts it. It trains as it was, under dense, and compressed."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from plans import PLANS, data, make_model
from torch import Tensor, nn
from trimtab.integrations.lightning import TrimtabCallback


class Classifier(LightningModule):
    def __init__(self, plan: str | None) -> None:
        super().__init__()
        self.net, self.plan = make_model(), plan

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.net(inputs), targets)
        if self.global_rank == 0:
            print(self.plan, repr(loss.item()), flush=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


def main(plan: str | None) -> None:
    torch.manual_seed(1)
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        callbacks=[] if plan is None else [TrimtabCallback(plan=plan)],
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(plan), torch.utils.data.DataLoader(data(), batch_size=16, shuffle=True))


if __name__ == "__main__":
    for each in PLANS:
        main(each)
