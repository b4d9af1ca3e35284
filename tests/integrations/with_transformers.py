"""A script for Hugging Face's Trainer; a callback adopts it. It trains as it was, under dense, and compressed."""

from __future__ import annotations

import tempfile

from plans import PLANS, data, make_model
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments
from trimtab.integrations.transformers import TrimtabCallback


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.net(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main(plan: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            ddp_backend="gloo",
            num_train_epochs=2,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            learning_rate=1e-2,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        samples = [{"inputs": inputs, "labels": label} for inputs, label in data()]
        trainer = Trainer(Classifier(), arguments, train_dataset=samples)
        if plan is not None:
            trainer.add_callback(TrimtabCallback(trainer, plan=plan))
        trainer.train()
    if trainer.is_world_process_zero():
        for each in trainer.state.log_history:
            print(plan, repr(each.get("loss")), repr(each.get("grad_norm")), flush=True)
        print(plan, repr(sum(p.detach().double().sum().item() for p in trainer.model.parameters())), flush=True)


if __name__ == "__main__":
    for each in PLANS:
        main(each)
