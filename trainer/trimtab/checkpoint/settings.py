"""Where a job's checkpoints are, and how often they are written."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_api.errors import UserError
from trimtab_api.trainingjob import TrainingJob


@dataclass(frozen=True)
class CheckpointSettings:
    """Settings of one job; the defaults are those of ``spec.checkpoint``."""

    where: str
    """A directory that every host sees under this path, or a URL that fsspec knows."""
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

    @classmethod
    def of(cls, job: TrainingJob) -> CheckpointSettings | None:
        """Return what the job asks for; None if it keeps no checkpoints.

        Raises:
            UserError: It asks for a volume claim, and no launcher that mounts one has started this process.
        """
        asked = job.spec.checkpoint
        if asked is None:
            return None
        if asked.path is None:
            remedy = "is mounted by the operator and `trimtab run` alone; name a directory or a URL by path"
            raise UserError(remedy, field="spec.checkpoint.volumeClaim")
        return cls(asked.path, job.metadata.name, asked.interval, asked.steps, asked.keep, asked.on_termination)
