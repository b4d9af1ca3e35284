"""The job of a script that another launcher started: a TrainingJob's file, or the defaults.

The file's fields for a cluster or for ``trimtab run`` (how many workers, what they run, restarts, deadlines) are the
launcher's business here; what counts is how gradients cross the network, how it is measured, the seed and the target.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trimtab_api.errors import UserError
from trimtab_api.trainingjob import TrainingJob, load_training_job
from trimtab_api.trainingjob.load import read_training_job

from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.plan.names import parse_plan, with_plan

#: Most characters of a name that `TrainingJob` allows; the first is a letter.
_LONGEST_NAME = 52


@dataclass(frozen=True)
class Configuration:
    """The script's arguments to `trimtab.attach`; an environment variable stands in for each that it leaves out."""

    job: Path | None = None
    """``TRIMTAB_JOB``."""
    plan: str | None = None
    """``TRIMTAB_PLAN``: as for ``trimtab run --plan``; replaces the job's."""
    run_directory: Path | None = None
    """``TRIMTAB_RUN_DIR``."""

    @classmethod
    def of(
        cls, job: str | Path | None, plan: str | None, run_directory: str | Path | None, environ: Mapping[str, str]
    ) -> Configuration:
        """Take what the script says, and else the environment. Raise `UserError` for what is no text and no path."""
        if plan is not None and not isinstance(plan, str):
            raise UserError("is a plan's name, such as '0.01/all-gather'", field="plan", value=repr(plan))
        for field, path in (("job", job), ("run_directory", run_directory)):
            if path is not None and not isinstance(path, str | Path):
                raise UserError("is a path", field=field, value=repr(path))
        file, folder = job or environ.get("TRIMTAB_JOB"), run_directory or environ.get("TRIMTAB_RUN_DIR")
        return cls(
            job=Path(file) if file else None,
            plan=plan or environ.get("TRIMTAB_PLAN") or None,
            run_directory=Path(folder) if folder else None,
        )

    def load(self) -> TrainingJob:
        """Load the job, under the plan. Raise `UserError`."""
        job = _default_job() if self.job is None else load_training_job(self.job)
        CheckpointSettings.of(job)  # which refuses what needs a launcher of ours
        if self.plan is None:
            return job
        return with_plan(job, parse_plan(self.plan, "plan"))

    def load_if_told(self) -> TrainingJob | None:
        """Load the job of a process that trains alone; None where it was told of no job and no plan.

        Raises:
            UserError: The job or the plan is wrong, which such a process would not notice by itself.
        """
        return None if self.job is None and self.plan is None else self.load()

    def directory(self, job: TrainingJob) -> Path:
        """Return where the run is recorded."""
        return self.run_directory or Path("runs") / job.metadata.name


def with_ranks(job: TrainingJob, num_hosts: int, num_ranks: int) -> TrainingJob:
    """Return the job with as many workers as there are hosts, or one worker a rank where hosts have unlike many ranks.

    Raises:
        UserError: A plan of the job does not run on so many ranks.
    """
    workers, on_each = (num_hosts, num_ranks // num_hosts) if num_ranks % num_hosts == 0 else (num_ranks, 1)
    data = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return read_training_job({**data, "spec": {**data["spec"], "workers": workers, "processesPerWorker": on_each}})


def _default_job() -> TrainingJob:
    """Make a job of defaults, named after the script."""
    script = sys.argv[0] if sys.argv else ""
    name = re.sub(r"[^a-z0-9]+", "-", Path(script).stem.lower()).strip("-") or "training"
    if not name[0].isalpha():
        name = f"run-{name}"
    name = name[:_LONGEST_NAME].strip("-")
    container = {"name": "trainer", "command": ["python"]}  # what the script was called with is not ours to keep
    head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}}
    return read_training_job({**head, "spec": {"workers": 1, "template": {"spec": {"containers": [container]}}}})
