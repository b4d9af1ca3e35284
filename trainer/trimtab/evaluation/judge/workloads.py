"""The jobs that the judge trains: small, unlike each other in optimizer and model, each to a held-out loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.control.types import OptimizerFamily

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

_WORKERS = 4


@dataclass(frozen=True)
class Workload:
    """One training, by the command that runs it."""

    name: str
    command: tuple[str, ...]
    target_loss: float
    """Held-out; at it a run ends."""
    optimizer: OptimizerFamily
    prior_half_gain_ratio: float
    """At which all-gather's gain settles at a half, as real runs have shown."""
    evaluation_seconds: float
    """Seconds of rank 0's evaluation after every fifth step, while the others wait; on the machine that timed steps."""

    @property
    def job(self) -> TrainingJob:
        """Its TrainingJob, of four workers."""
        from trimtab_api.trainingjob import TrainingJob

        trainer = {
            "name": "trainer",
            "image": "localhost/trimtab/trainer:0.1.0",
            "command": ["python", "-m", *self.command],
        }
        return TrainingJob.model_validate(
            {
                "apiVersion": "trimtab.dev/v1alpha1",
                "kind": "TrainingJob",
                "metadata": {"name": self.name},
                "spec": {
                    "workers": _WORKERS,
                    "seed": 1,
                    "template": {"spec": {"containers": [trainer]}},
                    "communication": {"policy": "Adaptive", "fusion": {"bufferSize": "single"}},
                    "network": {"probeInterval": "10s", "probeBudget": 0.02},
                    "target": {"metric": "loss", "value": self.target_loss},
                },
            }
        )


def _command(module: str, options: str) -> tuple[str, ...]:
    return f"trimtab.workloads.{module}", *options.split()


WORKLOADS = (
    Workload(
        "digits",
        _command("digits", "--hidden 256 --learning-rate 0.003 --epochs 20"),
        0.4,
        OptimizerFamily("SGD", "sgd"),
        prior_half_gain_ratio=0.065,
        evaluation_seconds=0.018,
    ),
    Workload(
        "gpt",
        _command("char_gpt", "--width 96 --layers 2 --text-bytes 600000 --epochs 2"),
        2.75,
        OptimizerFamily("AdamW", "adam", has_mean_moments=True),
        prior_half_gain_ratio=0.1,
        evaluation_seconds=0.06,
    ),
    Workload(
        "cnn",
        _command("cnn", "--learning-rate 0.003 --epochs 25"),
        0.5,
        OptimizerFamily("SGD", "sgd"),
        prior_half_gain_ratio=0.15,
        evaluation_seconds=0.06,
    ),
)
