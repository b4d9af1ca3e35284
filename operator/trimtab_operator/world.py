"""What is known of a job at one moment: all that a decision about it may depend on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from trimtab_api.trainer.v1 import status_pb2
from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.status import Status

from trimtab_operator.cluster.resources import Object
from trimtab_operator.labels import ATTEMPT, SUSPENDED
from trimtab_operator.pods import Pod


@dataclass(frozen=True)
class Child:
    """The Job that holds a TrainingJob's pods."""

    uid: str
    owner_uid: str
    attempt: int
    """Restarts that there had been when it was made."""
    is_deleting: bool
    is_suspended: bool
    is_suspended_by_us: bool
    """Whether that was spec.suspend's doing."""
    is_complete: bool
    failure: str | None
    """Why it failed, or is about to; None if it has not."""
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether it starts no more pods of its own accord."""
        return self.is_complete or self.failure is not None

    @classmethod
    def read(cls, job: Object) -> Self:
        """What matters of a Job."""
        metadata, status = job["metadata"], job.get("status", {})
        conditions = {each["type"]: each for each in status.get("conditions", ()) if each["status"] == "True"}
        # FailureTarget comes first, Failed when the last pod has ended.
        failed = conditions.get("FailureTarget") or conditions.get("Failed")
        owners = [each["uid"] for each in metadata.get("ownerReferences", ()) if each.get("controller")]
        return cls(
            uid=metadata["uid"],
            owner_uid=owners[0] if owners else "",
            attempt=int(metadata.get("labels", {}).get(ATTEMPT, 0)),
            is_deleting="deletionTimestamp" in metadata,
            is_suspended=bool(job["spec"].get("suspend")),
            is_suspended_by_us=SUSPENDED in metadata.get("annotations", {}),
            is_complete="Complete" in conditions or "SuccessCriteriaMet" in conditions,
            failure=(failed.get("message") or failed.get("reason") or "the Job failed") if failed else None,
            active=status.get("active", 0),
            ready=status.get("ready", 0),
            succeeded=status.get("succeeded", 0),
            failed=status.get("failed", 0),
        )


@dataclass(frozen=True)
class World:
    """One TrainingJob, what it has made, and the time."""

    job: TrainingJob
    namespace: str
    uid: str
    generation: int
    is_queued: bool
    """Whether Kueue decides when it runs: it has a queue, or its Job was given one."""
    status: Status
    """As it was last written."""
    child: Child | None
    pods: tuple[Pod, ...]
    """Pods of the child, not those of earlier attempts."""
    training: status_pb2.Status | None
    """What rank 0 says, if it says anything."""
    now: datetime

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.job.metadata.name

    @property
    def key(self) -> str:
        """How queue and caches call the job."""
        return f"{self.namespace}/{self.name}"
