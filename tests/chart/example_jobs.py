"""The examples for clusters, and the Jobs that the operator makes of them."""

from __future__ import annotations

from pathlib import Path

from trimtab_api.trainingjob import load_training_job
from trimtab_operator.children.job import job_manifest
from trimtab_operator.main import read_settings

EXAMPLES = Path(__file__).parents[2] / "examples/kubernetes"


def made_of(name):
    """The Job that the operator makes of an example, and the TrainingJob."""
    job = load_training_job(EXAMPLES / name)
    labels = dict(job.metadata.labels or {})
    settings = read_settings(["--namespace", "trimtab-system", "--netmon-image", "localhost/trimtab/netmon:0.1.0"])
    return job_manifest(job, "default", "4f2a", 0, labels, settings), job
