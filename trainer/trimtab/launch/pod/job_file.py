"""The file of the job that ranks read, with the workers that the job has by now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab_api.names import WORKERS_VARIABLE
from trimtab_api.trainingjob import load_job_file

from trimtab.launch.pod.private_folder import private_folder
from trimtab.run_files.layout import RunDirectory

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

    from trimtab.launch.pod.pod import Pod


@contextmanager
def job_file(pod: Pod, job: TrainingJob) -> Iterator[Path]:
    """Give the pod's own file, or where ``job`` has another number of workers a copy that says so.

    The pod's file is in a Secret that never changes. The copy goes when the context is left.

    Raises:
        UserError: There is no place for the copy.
    """
    if load_job_file(pod.job_file).spec.workers == job.spec.workers:
        yield pod.job_file
        return
    with private_folder("trimtab-job-", "a changed number of workers needs", WORKERS_VARIABLE) as folder:
        RunDirectory(folder).write_job(job)
        yield RunDirectory(folder).job
