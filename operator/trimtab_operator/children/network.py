"""The network of a job's pods: the Service that names each, and the NetworkPolicy that says who may call them."""

from __future__ import annotations

from trimtab_api.names import (
    MASTER_PORT,
    MONITOR_METRICS_PORT,
    MONITOR_PORT,
    TRAINER_METRICS_PORT,
    TRAINER_STATUS_PORT,
)
from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.children.owned import owned, shared_name
from trimtab_operator.kube.labels import ATTEMPT, JOB_NAME
from trimtab_operator.kube.resources import NETWORK_POLICIES, SERVICES, Object
from trimtab_operator.settings import Settings

METRICS_PORTS = (MONITOR_METRICS_PORT, TRAINER_METRICS_PORT)
#: Kubernetes' own label of a namespace: its name.
_NAMESPACE = "kubernetes.io/metadata.name"
#: Label of the operator's own pods; the chart sets it.
_OPERATOR_PODS = {"app.kubernetes.io/name": "trimtab-operator"}


def service(job: TrainingJob, namespace: str, uid: str, attempt: int) -> Object:
    """Return the headless Service.

    It publishes workers before they are ready, since they must find each other to become so. It does not publish
    workers of earlier attempts: a pod on a lost node stays for as long as the node does.
    """
    ports = {"master": MASTER_PORT, "monitor": MONITOR_PORT, "status": TRAINER_STATUS_PORT}
    return {
        **owned(SERVICES, job.metadata.name, job, namespace, uid),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {JOB_NAME: job.metadata.name, ATTEMPT: str(attempt)},
            "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in ports.items()],
        },
    }


def network_policy(job: TrainingJob, namespace: str, uid: str, settings: Settings) -> Object:
    """Return the policy of a job: its pods accept each other, the operator and the collector of metrics.

    It limits incoming traffic only: training data may come from anywhere.
    """
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
