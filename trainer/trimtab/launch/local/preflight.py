"""Finds what would keep a job from running on this machine, before anything is made or started."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from trimtab_api.errors import UserError
from trimtab_api.trainingjob import template_schema as known

from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab.launch.processes.trainer_command import rank_environment, trainer_process, unknown
from trimtab.process.storage import is_url, unreachable_reason, unwritable_reason

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

#: Memory that a rank needs before it has a model: what importing torch leaves in each process.
RANK_BYTES = 256 * 2**20


def check(job: TrainingJob) -> None:
    """Raise `UserError` where the job cannot start here; the caller adds the name of the job's file."""
    check_fields(job)
    check_size(job, psutil.virtual_memory().total)
    check_checkpoints(job)
    for worker in range(job.spec.workers):
        trainer_process(job, placeholder_environment(job, worker), worker, "127.0.0.1")
    if job.spec.workers > 1 and job.spec.network.probe == "iperf3" and shutil.which("iperf3") is None:
        raise UserError(
            "needs iperf3, which is not installed; apt-get install iperf3 (or your system's package of that name), "
            "or set it to auto",
            field="spec.network.probe",
            value=job.spec.network.probe,
        )


def check_size(job: TrainingJob, memory_bytes: int) -> None:
    """Raise `UserError` where the memory does not hold as many processes that import torch as there are ranks."""
    most = max(1, memory_bytes // RANK_BYTES)
    if job.spec.num_ranks <= most:
        return
    raise UserError(
        f"are {job.spec.num_ranks} processes in all, and this machine's {memory_bytes / 2**30:.0f} GiB of memory hold "
        f"{most} at most, as each takes {RANK_BYTES // 2**20} MiB before it has a model; "
        "lower spec.workers or spec.processesPerWorker, or run it on a cluster",
        field="spec.workers",
        value=str(job.spec.workers),
    )


def check_checkpoints(job: TrainingJob) -> None:
    """Raise `UserError` where ranks could not write checkpoints; the server behind a URL is asked by the ranks.

    Only they have the credentials, and know the directory that a relative path begins at.
    """
    where = "" if job.spec.checkpoint is None else job.spec.checkpoint.path or ""
    problem = None
    if is_url(where):
        problem = unreachable_reason(where)
    elif os.path.isabs(where):
        problem = unwritable_reason(Path(where))
    if problem is not None:
        raise UserError(problem, field="spec.checkpoint.path", value=where)


def check_fields(job: TrainingJob) -> None:
    """Raise `UserError` for a field that Kubernetes does not have: a cluster would drop or refuse it."""
    for field, data, names in _kubernetes_objects(job):
        for name in data:
            if name not in names:
                near = difflib.get_close_matches(str(name), names, n=1)
                remedy = f"did you mean {near[0]}?" if near else "remove it to run here"
                raise UserError(f"is no field that Kubernetes has there; {remedy}", field=f"{field}.{name}")


def warnings(job: TrainingJob) -> list[str]:
    """Return a line for each thing that the job's file asks for and that does not happen on one machine."""
    said = []
    if job.spec.suspend:
        said.append("spec.suspend: nothing suspends a job on one machine; it runs now")
    if job.spec.managed_by != type(job.spec).model_fields["managed_by"].default:
        said.append(f"spec.managedBy: {job.spec.managed_by!r} is of no concern on one machine; the job runs here")
    return [*said, *_literal_references(job)]


def _literal_references(job: TrainingJob) -> Iterator[str]:
    """Find references that stay unexpanded, as on a cluster: a value may only refer to variables before it."""
    before: set[str] = set()
    for index, entry in enumerate(job.spec.trainer.get("env") or []):
        for name in unknown(str(entry.get("value") or ""), before):
            yield (
                f"spec.template.spec.containers[trainer].env[{index}].value: $({name}) stays as it is written, because "
                f"a value may only refer to variables before it in env; set it before, or write $({name}) in command "
                "or args"
            )
        before.add(entry["name"])


def _kubernetes_objects(job: TrainingJob) -> Iterator[tuple[str, Mapping[str, Any], Collection[str]]]:
    """Yield each object that Kubernetes defines: its field, its contents, and the names that it may hold."""
    template = job.spec.template
    pod = template["spec"]
    yield "metadata", job.metadata.model_dump(), known.METADATA
    yield "spec.template", template, known.POD_TEMPLATE
    yield "spec.template.metadata", template.get("metadata") or {}, known.METADATA
    yield "spec.template.spec", pod, known.POD
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(pod.get(kind) or []):
            yield f"spec.template.spec.{kind}[{index}]", container, known.CONTAINER


def placeholder_environment(job: TrainingJob, worker: int) -> LaunchEnvironment:
    """Make the environment of a worker's first rank, with placeholders for unknown addresses and ports."""
    return rank_environment(
        job,
        worker,
        0,
        master=("127.0.0.1", 0),
        interface="lo",
        job_file=Path("job.json"),
        run_directory=Path(),
        monitor="127.0.0.1:0",
        secret="",
    )
