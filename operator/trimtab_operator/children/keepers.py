"""The keepers of a job's checkpoints in memory: pods of their own, which outlive attempts and the loss of a node."""

from __future__ import annotations

from trimtab_api.names import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    KEEPER_COMMAND,
    KEEPER_PORT,
    KEY_FILE,
    TLS_DIRECTORY,
    TLS_VARIABLE,
    keeper_host,
    keepers_name,
)
from trimtab_api.trainingjob import TrainingJob

from trimtab_operator.children.owned import inherited, owned, shared_name
from trimtab_operator.kube.labels import COMPONENT, labels
from trimtab_operator.kube.resources import SERVICES, STATEFUL_SETS, Object

#: Value of the label that tells a job's keepers from its workers.
_KEEPER = "keeper"
#: Any user but root: the image is the trainer's, and a keeper needs nothing of it but the program.
_USER = 65532
#: Memory of the process itself, beside what it keeps.
_OWN_BYTES = 256 << 20
_CPU = "100m"
#: Seconds that calls under way have when a pod is to end.
_GRACE_SECONDS = 5
#: What a keeper's pod takes of the user's template: where it may run, and how its image is pulled.
_TAKEN = ("nodeSelector", "tolerations", "imagePullSecrets", "priorityClassName", "schedulerName")
_KEEP = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
_TLS_VOLUME = "trimtab-tls"


def has_keepers(job: TrainingJob) -> bool:
    """Return whether the job keeps checkpoints in memory."""
    return job.spec.checkpoint is not None and job.spec.checkpoint.in_memory is not None


def keeper_addresses(job: TrainingJob, namespace: str) -> str:
    """Return the address of each worker's keeper, with commas between them."""
    hosts = (keeper_host(job.metadata.name, namespace, worker) for worker in range(job.spec.workers))
    return ",".join(f"{host}:{KEEPER_PORT}" for host in hosts)


def keepers(job: TrainingJob, namespace: str, uid: str) -> list[Object]:
    """Return the StatefulSet, with as many keepers as there are workers, and the Service that names them.

    Nothing is returned for a job that keeps no checkpoints in memory.
    """
    checkpoint = job.spec.checkpoint
    if checkpoint is None or checkpoint.in_memory is None:
        return []
    name = keepers_name(job.metadata.name)
    selector = {**labels(job.metadata.name), COMPONENT: _KEEPER}
    its_labels, annotations = inherited(job)
    return [
        {
            **owned(SERVICES, name, job, namespace, uid),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": selector,
                "ports": [{"name": _KEEPER, "port": KEEPER_PORT, "protocol": "TCP"}],
            },
        },
        {
            **owned(STATEFUL_SETS, name, job, namespace, uid),
            "spec": {
                "replicas": job.spec.workers,
                "serviceName": name,
                "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": "OnDelete"},  # whatever changes in the template empties no keeper
                "selector": {"matchLabels": selector},
                "template": {
                    "metadata": {"labels": {**its_labels, **selector}, "annotations": {**_KEEP, **annotations}},
                    "spec": _pod(job, checkpoint.in_memory_bytes, selector),
                },
            },
        },
    ]


def _pod(job: TrainingJob, num_bytes: int, selector: dict[str, str]) -> Object:
    given = job.spec.template["spec"]
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector},
    }
    files = [{"key": name, "path": name} for name in (AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE)]
    return {
        **{field: given[field] for field in _TAKEN if given.get(field)},
        "containers": [_container(job, num_bytes)],
        "topologySpreadConstraints": [spread],
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": _TLS_VOLUME, "secret": {"secretName": shared_name(job.metadata.name), "items": files}}],
    }


def _container(job: TrainingJob, num_bytes: int) -> Object:
    trainer = job.spec.trainer
    memory = str(num_bytes + _OWN_BYTES)
    return {
        "name": _KEEPER,
        "image": trainer.get("image"),
        **({"imagePullPolicy": trainer["imagePullPolicy"]} if trainer.get("imagePullPolicy") else {}),
        "command": list(KEEPER_COMMAND),
        "args": ["--listen", f"0.0.0.0:{KEEPER_PORT}", "--bytes", f"{num_bytes}B", "--host", "$(TRIMTAB_NODE)"],
        "env": [
            {"name": TLS_VARIABLE, "value": TLS_DIRECTORY},
            {"name": "TRIMTAB_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "ports": [{"name": _KEEPER, "containerPort": KEEPER_PORT}],
        "readinessProbe": {"tcpSocket": {"port": KEEPER_PORT}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": _CPU, "memory": memory}, "limits": {"memory": memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": _TLS_VOLUME, "mountPath": TLS_DIRECTORY, "readOnly": True}],
    }
