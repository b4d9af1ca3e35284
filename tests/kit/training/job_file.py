"""A file with the job of a training script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def job_file(folder: Path, **communication: Any) -> Path:
    containers = [{"name": "trainer", "command": ["python", "train.py"]}]
    spec = {"workers": 2, "template": {"spec": {"containers": containers}}, "communication": communication}
    path = folder / "job.json"
    path.write_text(
        yaml.safe_dump(
            {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "job"}, "spec": spec}
        )
    )
    return path
