"""Observed states to decide about: a default of each part, with what a test changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from trimtab_api.trainer.v1 import status_pb2
from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.status import Status
from trimtab_operator.decisions.decide import decide
from trimtab_operator.decisions.observed_state import BatchJob, ObservedState
from trimtab_operator.decisions.pods import Pod, Problem
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.kube.text import write_time
from trimtab_operator.rank0.sanitize import Rank0Status
from trimtab_operator.settings import Settings
from trimtab_operator.status.build import report

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
UID = "job-uid"

SETTINGS = Settings(
    namespace="trimtab-system",
    watched_namespace=None,
    netmon_image="netmon:1",
    scraper_namespace="monitoring",
    num_workers=1,
    port=0,
    identity="me",
)


def ago(seconds: float) -> str:
    """A time as the status writes it."""
    return write_time(NOW - timedelta(seconds=seconds))


def job(
    pod: dict | None = None,
    container: dict | None = None,
    name: str = "digits",
    metadata: dict | None = None,
    **spec,
) -> TrainingJob:
    """A good job of two workers; ``pod`` and ``container`` add to its template, and ``metadata`` to its own."""
    trainer = {"name": "trainer", "image": "i", "command": ["python", "t.py"], **(container or {})}
    template = {"spec": {"containers": [trainer], **(pod or {})}}
    return TrainingJob.model_validate(
        {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": "team", **(metadata or {})},
            "spec": {"workers": 2, "template": template, **spec},
        }
    )


def batch_job(**known) -> BatchJob:
    """A Job that runs."""
    fields = {
        "name": "digits",
        "uid": "child-uid",
        "owner_uid": UID,
        "attempt": 0,
        "has_its_labels": True,
        "is_deleting": False,
        "is_suspended": False,
        "is_suspended_by_us": False,
        "is_complete": False,
        "failure": None,
    }
    return BatchJob(**{**fields, **known})


def pod(worker: int = 0, **known) -> Pod:
    """A pod that runs."""
    fields = {
        "worker": worker,
        "owner_uid": "child-uid",
        "phase": "Running",
        "disruption": None,
        "failure": None,
        "failed_at": "",
        "exit_code": 0,
        "blocking_reason": None,
    }
    return Pod(**{**fields, **known})


def failed_pod(worker: int, at: str = "", reason: str = "Error", exit_code: int = 1) -> Pod:
    """A pod whose trainer failed."""
    failure = Problem(reason, f"worker {worker} failed")
    return pod(worker, phase="Failed", failure=failure, failed_at=at, exit_code=exit_code)


STUCK = pod(1, phase="Pending", blocking_reason=Problem("ImagePullBackOff", "worker 1 cannot start"))
"""A pod that something keeps from starting."""


def observed(spec: dict | None = None, status: dict | None = None, **known) -> ObservedState:
    """A job that runs, unless said otherwise."""
    fields = {
        "job": job(**(spec or {})),
        "namespace": "team",
        "uid": UID,
        "generation": 1,
        "is_queued": False,
        "status": Status.model_validate({"observedGeneration": 1, "startTime": ago(60), **(status or {})}),
        "batch_job": batch_job(),
        "pods": (),
        "stale_pods": (),
        "rank0_status": None,
        "unreachable_reason": "",
        "now": NOW,
        "progress": Progress(has_trained=True),
    }
    return ObservedState(**{**fields, **known})


def after(**known) -> Status:
    """The status that one reconciliation leads to."""
    seen = observed(**known)
    return report(seen, decide(seen))


def rank0_status(bandwidth: float = 125e6, plan_version: int = 1, **known) -> Rank0Status:
    """What is heard of a job that trains."""
    return Rank0Status.sanitize(said(bandwidth, plan_version, **known))


def said(bandwidth: float = 125e6, plan_version: int = 1, **known) -> status_pb2.Status:
    """What rank 0 says of a job that trains."""
    plan = status_pb2.Plan(
        version=plan_version,
        name="0.01/all-gather",
        ratio=0.01,
        collective="all-gather",
        reason="why",
        adopted_at_step=7,
    )
    network = status_pb2.Network(revision=3, latency_seconds=0.005, bandwidth_bytes_per_second=bandwidth)
    figures = {"step": 12, "loss": 0.1234567, "step_seconds": 0.12, "state": status_pb2.STATE_RUNNING}
    return status_pb2.Status(plan=plan, network=network, **{**figures, **known})
