"""The NetworkPolicy of a job: its pods accept each other, the operator, and the collector of metrics."""

from __future__ import annotations

from trimtab_api.names import MONITOR_METRICS_PORT, TRAINER_METRICS_PORT, TRAINER_STATUS_PORT
from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.children.owned import owned, shared_name
from trimtab_operator.kube.labels import JOB_NAME
from trimtab_operator.kube.resources import NETWORK_POLICIES, Object
from trimtab_operator.settings import Settings

METRICS_PORTS = (MONITOR_METRICS_PORT, TRAINER_METRICS_PORT)
#: Kubernetes' own label of a namespace: its name.
_NAMESPACE = "kubernetes.io/metadata.name"
#: Label of the operator's own pods; the chart sets it.
_OPERATOR_PODS = {"app.kubernetes.io/name": "trimtab-operator"}


def network_policy(job: TrainingJob, namespace: str, uid: str, settings: Settings) -> Object:
    """Return the policy, which limits incoming traffic only: training data may come from anywhere."""
    same_job = {"podSelector": {"matchLabels": {JOB_NAME: job.metadata.name}}}
    operator = {
        "namespaceSelector": {"matchLabels": {_NAMESPACE: settings.namespace}},
        "podSelector": {"matchLabels": _OPERATOR_PODS},
    }
    scraper = {"namespaceSelector": {"matchLabels": {_NAMESPACE: settings.scraper_namespace}}}
    return {
        **owned(NETWORK_POLICIES, shared_name(job.metadata.name), job, namespace, uid),
        "spec": {
            "podSelector": same_job["podSelector"],
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [same_job]},
                {"from": [operator], "ports": [{"protocol": "TCP", "port": TRAINER_STATUS_PORT}]},
                {"from": [scraper], "ports": [{"protocol": "TCP", "port": port} for port in METRICS_PORTS]},
            ],
        },
    }
