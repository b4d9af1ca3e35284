"""The observed state of a job at one moment: all that a decision may depend on."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.status import Status

from trimtab_operator.decisions.pods import Pod, Problem
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.kube.labels import ATTEMPT, JOB_NAME, SUSPENDED, labels
from trimtab_operator.kube.resources import Object, controller_uid
from trimtab_operator.rank0.sanitize import Rank0Status


@dataclass(frozen=True)
class BatchJob:
    """The Job that holds a TrainingJob's pods."""

    name: str
    uid: str
    owner_uid: str
    attempt: int
    """Number of restarts before it was made."""
    has_its_labels: bool
    """True if it still has the labels that it was made with: without them the watch does not show it."""
    is_deleting: bool
    is_suspended: bool
    is_suspended_by_us: bool
    """True if the operator suspended it, for spec.suspend."""
    is_complete: bool
    failure: str | None
    """The reason why it failed, or is about to; None if it has not."""
    num_workers: int = 0
    """The workers that it was made for; 0 if it does not say."""
    version: str = ""
    """The resource version."""
    is_begun: bool = True
    """True if the Job controller has begun to make its pods since it was made or resumed."""
    started_at: str = ""
    """When it has (RFC 3339)."""
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def is_finished(self) -> bool:
        """True if the Job starts no more pods of its own accord."""
        return self.is_complete or self.failure is not None

    @classmethod
    def read(cls, job: Object) -> Self:
        """Return the part of a Job that decisions need."""
        metadata, status = job["metadata"], job.get("status", {})
        conditions = {
            condition["type"]: condition for condition in status.get("conditions", ()) if condition["status"] == "True"
        }
        # FailureTarget comes first, Failed when the last pod has ended.
        failed = conditions.get("FailureTarget") or conditions.get("Failed")
        # Anybody may edit the labels of a Job; its template still has those that it was made with.
        template = job["spec"].get("template", {}).get("metadata", {}).get("labels", {})
        attempt = template.get(ATTEMPT, "")
        its_labels = {**labels(template.get(JOB_NAME, "")), ATTEMPT: attempt}
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            owner_uid=controller_uid(job),
            attempt=int(attempt) if attempt.isdecimal() else 0,
            has_its_labels=its_labels.items() <= metadata.get("labels", {}).items(),
            is_deleting="deletionTimestamp" in metadata,
            is_suspended=bool(job["spec"].get("suspend")),
            is_suspended_by_us=SUSPENDED in metadata.get("annotations", {}),
            is_complete="Complete" in conditions or "SuccessCriteriaMet" in conditions,
            failure=(failed.get("message") or failed.get("reason") or "the Job failed") if failed else None,
            num_workers=job["spec"].get("completions") or 0,
            version=metadata.get("resourceVersion") or "",
            is_begun="startTime" in status,
            started_at=status.get("startTime") or "",
            active=status.get("active", 0),
            ready=status.get("ready", 0),
            succeeded=status.get("succeeded", 0),
            failed=status.get("failed", 0),
        )


@dataclass(frozen=True)
class ObservedState:
    """The observed state of one TrainingJob and its children, and the time."""

    job: TrainingJob
    """The TrainingJob without its template (`caches`)."""
    namespace: str
    uid: str
    generation: int
    is_queued: bool
    """True if Kueue decides when it runs: it has a queue, or its Job was given one."""
    status: Status
    """The status as it was last written."""
    batch_job: BatchJob | None
    """The Job of this attempt, by its name, whoever owns it."""
    pods: tuple[Pod, ...]
    """Pods of the batch job, not those of earlier attempts."""
    stale_pods: tuple[Pod, ...]
    """Pods of earlier Jobs that have yet to end and can, because their node is reachable; empty if this attempt has its
    Job. They are known by their owner, not by their labels."""
    rank0_status: Rank0Status | None
    """Rank 0's last message; None if there is none."""
    unreachable_reason: str
    """The reason why rank 0 has not reported for long; empty if it has."""
    now: datetime
    earlier_batch_jobs: tuple[BatchJob, ...] = ()
    """The job's own Jobs of earlier attempts, as far as they are still there."""
    progress: Progress = field(default_factory=Progress)
    """How far training has got in this attempt."""
    creation_error: Problem | None = None
    """The reason why the Job cannot make its pods, or a pod cannot mount its volumes; None: no event gives one."""
    missing_pods_seconds: float = 0.0
    """For how long this operator has seen the Job lack pods; 0 if it lacks none, or its events were not read yet."""

    @property
    def name(self) -> str:
        """The job's ``metadata.name``."""
        return self.job.metadata.name

    @property
    def owned_job(self) -> BatchJob | None:
        """The Job of this attempt if it belongs to this very TrainingJob."""
        return self.batch_job if self.batch_job is not None and self.batch_job.owner_uid == self.uid else None

    @property
    def has_trained(self) -> bool:
        """True if steps were done in this attempt, by rank 0's word to this operator or the written status."""
        batch_job = self.owned_job
        is_written = (
            self.status.state == "Running" and batch_job is not None and batch_job.attempt == self.status.restarts
        )
        return self.progress.has_trained or is_written

    @property
    def has_missing_pods(self) -> bool:
        """True if the Job has begun to make pods and has fewer than there are workers."""
        batch_job = self.owned_job
        if batch_job is None or self.status.is_final or batch_job.attempt != self.status.restarts:
            return False
        if not batch_job.is_begun or batch_job.is_suspended or batch_job.is_deleting or batch_job.is_finished:
            return False
        return batch_job.active + batch_job.succeeded + batch_job.failed < self.job.spec.workers

    @property
    def is_stuck(self) -> bool:
        """True if the Job has begun to make pods, has none at all, and no event gives a reason."""
        batch_job = self.owned_job
        if batch_job is None or not self.has_missing_pods or self.creation_error is not None or self.pods:
            return False
        return batch_job.active + batch_job.succeeded + batch_job.failed == 0

    @property
    def key(self) -> str:
        """The job's key in queue and caches."""
        return f"{self.namespace}/{self.name}"
