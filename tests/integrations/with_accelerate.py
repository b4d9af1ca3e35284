"""A script for accelerate; one line adopts it. It trains as it was, under dense, and compressed."""

from __future__ import annotations

import torch
import trimtab
from accelerate import Accelerator
from plans import PLANS, data, make_model
from torch import nn


def main(plan: str | None) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(1)
    loader = torch.utils.data.DataLoader(data(), batch_size=16, shuffle=True)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.9)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    if plan is not None:
        session = trimtab.attach(model, optimizer, plan=plan)
    for _ in range(2):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.is_main_process:
                print(plan, repr(loss.item()), flush=True)
    if plan is not None:
        session.close()
    accelerator.free_memory()


if __name__ == "__main__":
    for each in PLANS:
        main(each)
