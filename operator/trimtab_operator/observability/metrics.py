"""The operator's metrics: of itself, and of the jobs that it manages."""

from __future__ import annotations

from importlib.metadata import version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from trimtab_api.trainingjob.status import FINAL_STATES

disable_created_metrics()  # type: ignore[no-untyped-call] # as many series again, which nobody asks for

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
Info("trimtab_operator_build", "Version of the operator", registry=REGISTRY).info(
    {"version": version("trimtab-operator")}
)

RECONCILES = Counter(
    "trimtab_operator_reconciles",
    "Reconciliations of a TrainingJob: ok; conflict: the job had changed meanwhile; refused: by the API server; error:"
    " a defect",
    ["result"],
    registry=REGISTRY,
)
RECONCILE_SECONDS = Histogram(
    "trimtab_operator_reconcile_seconds",
    "Duration of one reconciliation of a TrainingJob",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    registry=REGISTRY,
)
QUEUE_LENGTH = Gauge(
    "trimtab_operator_queue_length",
    "TrainingJobs that wait to be reconciled; 0 unless this process leads",
    registry=REGISTRY,
)
QUEUE_WAIT_SECONDS = Gauge(
    "trimtab_operator_queue_wait_seconds",
    "How long the job at the head of the queue has waited; 0 unless this process leads",
    registry=REGISTRY,
)
WATCH_SILENCE_SECONDS = Gauge(
    "trimtab_operator_watch_silence_seconds",
    "Time since a watch last made progress",
    ["resource"],
    registry=REGISTRY,
)
IS_LEADER = Gauge("trimtab_operator_leader", "1: this process leads", registry=REGISTRY)
RESTARTS = Counter(
    "trimtab_operator_restarts",
    "Restarts of all ranks of a job together; false: a node went away, which maxRestarts does not count",
    ["counted"],
    registry=REGISTRY,
)
FINISHED = Counter("trimtab_operator_jobs_finished", "TrainingJobs that ended, by how", ["state"], registry=REGISTRY)
API_REQUESTS = Counter(
    "trimtab_operator_api_requests",
    "Requests to the API server; the code may be `no answer`. Those of leases are not counted",
    ["method", "code"],
    registry=REGISTRY,
)
EVENTS_DROPPED = Counter(
    "trimtab_operator_events_dropped",
    "Events of jobs that were never written: refused, or too many of one job",
    ["reason"],
    registry=REGISTRY,
)

# A counter that appears with its first event hides that event from increase().
for _result in ("ok", "conflict", "refused", "error"):
    RECONCILES.labels(result=_result)
for _counted in ("true", "false"):
    RESTARTS.labels(counted=_counted)
for _state in FINAL_STATES:
    FINISHED.labels(state=_state)
for _reason in ("too many", "refused"):
    EVENTS_DROPPED.labels(reason=_reason)
