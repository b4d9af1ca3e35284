"""The headless Service that gives every worker a DNS name."""

from __future__ import annotations

from trimtab_api.names import MASTER_PORT, MONITOR_PORT, TRAINER_STATUS_PORT
from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.children.owned import owned
from trimtab_operator.kube.labels import ATTEMPT, JOB_NAME
from trimtab_operator.kube.resources import SERVICES, Object


def service(job: TrainingJob, namespace: str, uid: str, attempt: int) -> Object:
    """Return the Service, which publishes workers before they are ready: they must find each other to become so.

    It does not publish workers of earlier attempts: a pod on a lost node stays for as long as the node does.
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
