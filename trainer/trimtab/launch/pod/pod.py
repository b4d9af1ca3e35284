"""The environment of a worker's pod: the operator's variables, and the pod's completion index in its Job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from trimtab_api.errors import UserError
from trimtab_api.names import KEEPERS_VARIABLE, POD_INTERFACE, WORKERS_VARIABLE
from trimtab_api.trainingjob import TrainingJob, load_job_file

_REMEDY = "is not set; this command is the entry of a pod that the operator makes. On one machine, use `trimtab run`"

#: Seconds of a pod's grace that are kept back for the worker itself, and the most that it may be of a short one.
_FAREWELL_SECONDS, _FAREWELL_SHARE = 5.0, 0.2
#: Factors of the suffixes of a CPU quantity.
_CPU_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3}


@dataclass(frozen=True)
class Pod:
    """One worker's place in its job."""

    worker: int
    """Completion index of the pod: this worker, from 0."""
    address: str
    """IP address of the pod."""
    interface: str
    """The network device that gradients cross."""
    master_host: str
    """DNS name of worker 0's pod."""
    master_port: int
    job_file: Path
    run_directory: Path
    num_workers: int | None = None
    """Workers of this attempt; None: as many as the job's file says, which is as it was when the job was created."""
    keepers: tuple[str, ...] = ()
    """Address of each worker's keeper of checkpoints in memory."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Read the container's environment. Raise `UserError` naming the variable that is missing or wrong."""
        return cls(
            worker=_number(environ, "JOB_COMPLETION_INDEX"),
            address=_ipv4(environ, "TRIMTAB_POD_IP"),
            interface=environ.get("GLOO_SOCKET_IFNAME", POD_INTERFACE),
            master_host=_text(environ, "MASTER_ADDR"),
            master_port=_number(environ, "MASTER_PORT"),
            job_file=Path(_text(environ, "TRIMTAB_JOB")),
            run_directory=Path(_text(environ, "TRIMTAB_RUN_DIR")),
            num_workers=_number(environ, WORKERS_VARIABLE) if WORKERS_VARIABLE in environ else None,
            keepers=tuple(filter(None, environ.get(KEEPERS_VARIABLE, "").split(","))),
        )

    def load_job(self) -> TrainingJob:
        """Load the job that the operator resolved, with the workers of this attempt. Raise `UserError`."""
        job = load_job_file(self.job_file)
        if self.num_workers is not None:
            job = job.with_workers(self.num_workers)
        if self.worker >= job.spec.workers:
            raise UserError(
                f"is not a worker of a job with {job.spec.workers}",
                field="JOB_COMPLETION_INDEX",
                value=str(self.worker),
            )
        return job


def grace_seconds(job: TrainingJob) -> float:
    """Return the seconds that ranks have to end once their pod is told to, such as to save a checkpoint.

    That is the pod's terminationGracePeriodSeconds, less what the worker needs to say how it ended.
    """
    seconds = job.spec.termination_grace_seconds
    return seconds - min(_FAREWELL_SECONDS, seconds * _FAREWELL_SHARE)


def num_threads(job: TrainingJob, num_cores: int) -> int:
    """Return a rank's share of its container's CPU limit, else of its request rounded up, else of ``num_cores``.

    A limit or request that the container does not have, the pod as a whole may have.

    Args:
        job: Its job.
        num_cores: Processors that this process may run on.
    """
    of_container, of_pod = job.spec.trainer.get("resources") or {}, job.spec.template["spec"].get("resources") or {}
    limit, request = (_cpus_of(of_container, kind) or _cpus_of(of_pod, kind) for kind in ("limits", "requests"))
    cores = float(num_cores)
    if limit is not None:
        cores = _cores(str(limit))
    elif request is not None:
        cores = math.ceil(_cores(str(request)))
    return max(1, int(min(cores, num_cores) / job.spec.processes_per_worker))


def _cpus_of(resources: Mapping[str, Any], kind: str) -> str | int | float | None:
    cpus: str | int | float | None = (resources.get(kind) or {}).get("cpu")
    return cpus


def _cores(quantity: str) -> float:
    """Parse Kubernetes' CPU quantity: ``2``, ``1.5``, ``500m``, ``500000u``."""
    number = quantity.rstrip("".join(_CPU_UNITS))
    return float(number) * _CPU_UNITS.get(quantity[len(number) :], 1.0)


def _ipv4(environ: Mapping[str, str], name: str) -> str:
    address = _text(environ, name)
    if ":" in address:
        raise UserError(
            "is an IPv6 address, and workers speak IPv4 alone; run the job where pods get an IPv4 address first",
            field=name,
            value=address,
        )
    return address


def _text(environ: Mapping[str, str], name: str) -> str:
    try:
        return environ[name]
    except KeyError:
        raise UserError(_REMEDY, field=name) from None


def _number(environ: Mapping[str, str], name: str) -> int:
    text = _text(environ, name)
    if not text.isdecimal():
        raise UserError("must be a whole number from 0", field=name, value=text)
    return int(text)
