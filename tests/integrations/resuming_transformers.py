"""Trains by Hugging Face's Trainer as a whole, and again in two parts; writes both models' weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from plans import data
from transformers import Trainer, TrainerCallback, TrainingArguments
from trimtab.integrations.transformers import TrimtabCallback
from with_transformers import Classifier

STEPS, STOP = 8, 4
OUT = Path(sys.argv[1])


class Stop(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop |= state.global_step == STOP


def train(folder: str, *, stops: bool = False, resumes: bool = False) -> list[float]:
    torch.manual_seed(0)
    arguments = TrainingArguments(
        str(OUT / folder),
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=STEPS,
        per_device_train_batch_size=16,
        learning_rate=1e-2,
        report_to=[],
        save_steps=STOP,
        disable_tqdm=True,
        seed=3,
    )
    samples = [{"inputs": inputs, "labels": label} for inputs, label in data()]
    trainer = Trainer(Classifier(), arguments, train_dataset=samples, callbacks=[Stop()] if stops else [])
    trainer.add_callback(TrimtabCallback(trainer, plan="0.05/all-gather", run_directory=str(OUT / f"run-{folder}")))
    trainer.train(resume_from_checkpoint=resumes)
    assert trainer.state.global_step == (STOP if stops else STEPS)
    return [float(parameter.detach().double().sum()) for parameter in trainer.model.parameters()]


def main() -> None:
    whole = train("whole")
    train("parts", stops=True)
    resumed = train("parts", resumes=True)
    rank = int(torch.distributed.get_rank())
    (OUT / f"rank-{rank}.json").write_text(json.dumps([whole, resumed]))


if __name__ == "__main__":
    main()
