"""The operator's metrics: of itself, and of the jobs that it manages."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

RECONCILES = Counter(
    "trimtab_operator_reconciles", "Reconciliations of a TrainingJob, by result.", ["result"], registry=REGISTRY
)
RECONCILE_SECONDS = Histogram(
    "trimtab_operator_reconcile_seconds",
    "Duration of one reconciliation of a TrainingJob.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    registry=REGISTRY,
)
QUEUE_LENGTH = Gauge(
    "trimtab_operator_queue_length",
    "TrainingJobs that wait to be reconciled; 0 unless this process leads.",
    registry=REGISTRY,
)
QUEUE_WAIT_SECONDS = Gauge(
    "trimtab_operator_queue_wait_seconds",
    "How long the job at the head of the queue has waited; 0 unless this process leads.",
    registry=REGISTRY,
)
WATCH_SILENCE_SECONDS = Gauge(
    "trimtab_operator_watch_silence_seconds",
    "Time since a watch last made progress.",
    ["resource"],
    registry=REGISTRY,
)
IS_LEADER = Gauge("trimtab_operator_leader", "1 if this process leads.", registry=REGISTRY)
RESTARTS = Counter(
    "trimtab_operator_restarts", "Restarts of all ranks of a job together.", ["counted"], registry=REGISTRY
)
FINISHED = Counter("trimtab_operator_jobs_finished", "TrainingJobs that ended.", ["state"], registry=REGISTRY)
