"""Where a job's checkpoints are, and how often they are written."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_api.errors import UserError
from trimtab_api.trainingjob import TrainingJob


@dataclass(frozen=True)
class MemorySettings:
    """The copies of a job's checkpoints in the memory of its workers' hosts."""

    keepers: tuple[str, ...]
    """Address of each worker's keeper."""
    worker: int
    """Number of this process's worker."""
    seconds: float = 60.0
    """Seconds between two of them."""
    steps: int | None = None
    """Steps between two; None: the time alone counts."""


@dataclass(frozen=True)
class CheckpointSettings:
    """Settings of one job; the defaults are those of ``spec.checkpoint``."""

    where: str | None
    """A directory that every host sees under this path, or a URL that fsspec knows; None: memory alone has them."""
    job: str
    """Name of the job, for the manifest."""
    seconds: float = 600.0
    """Seconds between two checkpoints."""
    steps: int | None = None
    """Steps between two; None: the time alone counts."""
    keep: int = 2
    """Whole checkpoints that stay."""
    on_termination: bool = True
    """True if SIGTERM has the job write one more before this process ends."""
    memory: MemorySettings | None = None
    """None: no copies are in memory."""
    from_job: str | None = None
    """The name that the job had before."""

    @classmethod
    def of(cls, job: TrainingJob, keepers: tuple[str, ...] = (), worker: int = 0) -> CheckpointSettings | None:
        """Return what the job asks for; None if it keeps no checkpoints.

        Args:
            job: The job.
            keepers: Address of each worker's keeper, where the launcher has started any.
            worker: Number of this process's worker.

        Raises:
            UserError: The job asks for a volume claim or for copies in memory, and no launcher of ours has seen to it.
        """
        asked = job.spec.checkpoint
        if asked is None:
            return None
        if asked.volume_claim is not None and asked.path is None:
            remedy = "is mounted by the operator and `trimtab run` alone; name a directory or a URL by path"
            raise UserError(remedy, field="spec.checkpoint.volumeClaim")
        memory = None
        if asked.in_memory is not None:
            if not keepers:
                raise UserError(
                    "is kept by processes that only `trimtab run` and the operator start; leave it out here, and name a"
                    " place by spec.checkpoint.path",
                    field="spec.checkpoint.inMemory",
                    value=asked.in_memory,
                )
            memory = MemorySettings(keepers, worker, asked.in_memory_interval, asked.in_memory_steps)
        return cls(
            asked.path,
            job.metadata.name,
            asked.interval,
            asked.steps,
            asked.keep,
            asked.on_termination,
            memory,
            asked.from_job,
        )
