"""A script for Hugging Face's Trainer; a callback adopts it. It trains as it was, and under each plan."""

from __future__ import annotations

import tempfile

from plans import PLANS, choose, data, make_model, run_directory, say, say_weights
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


def main(plan: str) -> None:
    choose(plan)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            ddp_backend="gloo",
            num_train_epochs=6,
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
        if plan != "own":
            trainer.add_callback(TrimtabCallback(trainer, run_directory=run_directory(plan)))
        trainer.train()
    for each in trainer.state.log_history:
        if "grad_norm" in each:
            say(plan, "loss", each["loss"], each["grad_norm"])
    say_weights(plan, trainer.model)


if __name__ == "__main__":
    for each in PLANS:
        main(each)
