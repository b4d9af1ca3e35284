"""A worker's pod: the user's template, with the monitor beside the trainer and what both need."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from trimtab_api.names import (
    ATTEMPT_VARIABLE,
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    CHECKPOINT_DIRECTORY,
    JOB_FILE,
    KEEPERS_VARIABLE,
    KEY_FILE,
    MASTER_PORT,
    MONITOR_METRICS_PORT,
    MONITOR_PORT,
    POD_INTERFACE,
    RUN_DIRECTORY,
    TLS_DIRECTORY,
    TLS_VARIABLE,
    TRAINER_METRICS_PORT,
    TRAINER_STATUS_PORT,
    WORKER_COMMAND,
    WORKERS_VARIABLE,
    attempt_name,
    service_host,
    worker_host,
)
from trimtab_api.trainingjob import TrainingJob
from trimtab_api.trainingjob.pod_template import TRAINER_CONTAINER
from trimtab_api.units import format_duration

from trimtab_operator.children.claim import claim_name
from trimtab_operator.children.keepers import has_keepers, keeper_addresses
from trimtab_operator.children.owned import inherited, shared_name
from trimtab_operator.children.quality_of_service import guaranteed, is_guaranteed
from trimtab_operator.children.secret import JOB_KEY
from trimtab_operator.kube.labels import ATTEMPT, labels
from trimtab_operator.kube.resources import Object
from trimtab_operator.settings import Settings

MONITOR_CONTAINER = "netmon"
#: Whom the monitor's image runs as (`Dockerfile`).
_MONITOR_USER = 65532
#: The account of pods that name none; Kubernetes makes it in every namespace.
DEFAULT_ACCOUNT = "default"
_INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"
#: A volume of this name in the user's template keeps what runs leave (and survives restarts, if the volume does).
RUN_VOLUME = "trimtab-run"

_TLS_VOLUME, _JOB_VOLUME, _SHM_VOLUME, _TMP_VOLUME = "trimtab-tls", "trimtab-job", "trimtab-shm", "trimtab-netmon-tmp"
_CHECKPOINT_VOLUME = "trimtab-checkpoints"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - it is what NCCL and data loaders use, by that name
#: Shared memory of each process; NCCL takes tens of MB a peer, data loaders their batches.
_SHARED_MEMORY_GIB = 2

#: All that listens is declared: on the host's network the scheduler then keeps two jobs of one host apart. Users may
#: name ports of theirs in this container as they like.
_TRAINER_PORTS: tuple[Object, ...] = (
    {"name": "trimtab-status", "containerPort": TRAINER_STATUS_PORT},
    {"name": "trimtab-metrics", "containerPort": TRAINER_METRICS_PORT},
    {"name": "trimtab-master", "containerPort": MASTER_PORT},
)

#: Annotations that keep autoscalers from moving a worker to save a node: all ranks would restart. Where the template
#: has one of them, its word holds.
_KEEP = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}

_TLS_MOUNT: Object = {"name": _TLS_VOLUME, "mountPath": TLS_DIRECTORY, "readOnly": True}


def pod_template(
    job: TrainingJob, namespace: str, attempt: int, settings: Settings, account_pull_secrets: Sequence[Object] = ()
) -> Object:
    """Return the template of a Job: the user's, except what would let ranks restart one by one.

    Args:
        job: The TrainingJob.
        namespace: The namespace of the TrainingJob.
        attempt: Number of restarts before this attempt.
        settings: The operator's settings.
        account_pull_secrets: Pull secrets of the pod's ServiceAccount, which Kubernetes adds only to a pod without any.
    """
    template = copy.deepcopy(job.spec.template)
    metadata, pod = template.get("metadata") or {}, template["spec"]
    template["metadata"] = metadata
    its_labels, annotations = inherited(job)
    given = metadata.get("labels") or {}
    metadata["labels"] = {**its_labels, **given, **labels(job.metadata.name), ATTEMPT: str(attempt)}
    metadata["annotations"] = {**_KEEP, **annotations, **(metadata.get("annotations") or {})}
    pod["restartPolicy"] = "Never"
    pod["subdomain"] = job.metadata.name
    if job.spec.checkpoint is not None:
        pod.setdefault("terminationGracePeriodSeconds", int(job.spec.termination_grace_seconds))
    pod.setdefault("enableServiceLinks", False)
    if pod.get("hostNetwork"):  # else it asks the host's resolver, which knows no worker's name
        pod.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    if account_of(pod) == DEFAULT_ACCOUNT:  # whatever rights that has, the job's processes have no token to use them
        pod.setdefault("automountServiceAccountToken", False)
    if settings.netmon_pull_secrets:
        given = pod.get("imagePullSecrets") or [*account_pull_secrets]
        ours = [{"name": name} for name in settings.netmon_pull_secrets]
        pod["imagePullSecrets"] = [*given, *(each for each in ours if each not in given)]
    trainer = next(container for container in pod["containers"] if container["name"] == TRAINER_CONTAINER)
    _complete_trainer(trainer, job, namespace, attempt)
    monitor = _monitor(job, namespace, attempt, settings, trainer)
    monitor["resources"] = guaranteed(settings.netmon_resources) if is_guaranteed(pod) else settings.netmon_resources
    if (pod.get("securityContext") or {}).get("runAsUser") == 0:  # which the monitor would be refused to run as
        monitor["securityContext"]["runAsUser"] = _MONITOR_USER
    pod["initContainers"] = [monitor, *(pod.get("initContainers") or ())]
    volumes = pod.get("volumes") or []
    pod["volumes"] = [*volumes, *_volumes(job, volumes, trainer)]
    return template


def account_of(pod: Object) -> str:
    """Return the name of the ServiceAccount that a pod of this spec runs under."""
    return str(pod.get("serviceAccountName") or pod.get("serviceAccount") or DEFAULT_ACCOUNT)


def _complete_trainer(trainer: Object, job: TrainingJob, namespace: str, attempt: int) -> None:
    trainer["command"] = [*WORKER_COMMAND, "--", *trainer["command"]]
    trainer.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    variables = {
        "TRIMTAB_JOB": JOB_FILE,
        # A claim may be mounted by several jobs, and a path of a node by jobs of several namespaces.
        "TRIMTAB_RUN_DIR": f"{RUN_DIRECTORY}/{namespace}/{job.metadata.name}",
        TLS_VARIABLE: TLS_DIRECTORY,
        ATTEMPT_VARIABLE: str(attempt),
        WORKERS_VARIABLE: str(job.spec.workers),
        "MASTER_ADDR": _host(job, namespace, attempt, 0),
        "MASTER_PORT": str(MASTER_PORT),
        **({KEEPERS_VARIABLE: keeper_addresses(job, namespace)} if has_keepers(job) else {}),
    }
    trainer["env"] = [*(trainer.get("env") or ()), *_values(variables), _field("TRIMTAB_POD_IP", "status.podIP")]
    mounts = trainer.get("volumeMounts") or []
    ours: list[Object] = [
        _TLS_MOUNT,
        {"name": _JOB_VOLUME, "mountPath": str(PurePosixPath(JOB_FILE).parent), "readOnly": True},
        {"name": RUN_VOLUME, "mountPath": RUN_DIRECTORY},
        {"name": _SHM_VOLUME, "mountPath": _SHARED_MEMORY},
    ]
    if claim_name(job) is not None:
        ours.append({"name": _CHECKPOINT_VOLUME, "mountPath": CHECKPOINT_DIRECTORY})
    taken = {str(PurePosixPath(str(mount.get("mountPath") or ""))) for mount in mounts}  # /dev/shm/ is /dev/shm
    trainer["volumeMounts"] = [*mounts, *(each for each in ours if each["mountPath"] not in taken)]
    ports = trainer.get("ports") or []
    named = {port.get("containerPort") for port in ports if port.get("protocol", "TCP") == "TCP"}
    trainer["ports"] = [*ports, *(port for port in _TRAINER_PORTS if port["containerPort"] not in named)]


def _monitor(job: TrainingJob, namespace: str, attempt: int, settings: Settings, trainer: Object) -> Object:
    """Return the network monitor: a sidecar that is up before the trainer starts, and ends after it."""
    network = job.spec.network
    interface, variables = _interface(trainer)
    flags = {
        "--rank": "$(JOB_COMPLETION_INDEX)",
        "--peers": _peers(job, namespace, attempt),
        "--service": service_host(job.metadata.name, namespace),
        "--listen": f"$(TRIMTAB_POD_IP):{MONITOR_PORT}",
        "--interface": interface,
        "--probe-interval": format_duration(network.probe_interval),
        "--probe-budget": f"{network.probe_budget:g}",
        "--probe-bytes-per-day": f"{network.probe_bytes_per_day}B",
        "--probe": network.probe,
        "--metrics-port": str(MONITOR_METRICS_PORT),
        "--node": "$(TRIMTAB_NODE)",
        "--zone": "$(TRIMTAB_ZONE)",
    }
    return {
        "name": MONITOR_CONTAINER,
        "image": settings.netmon_image,
        **({"imagePullPolicy": settings.netmon_pull_policy} if settings.netmon_pull_policy else {}),
        "restartPolicy": "Always",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "command": ["trimtab-netmon", "serve"],
        "args": [word for flag in flags.items() for word in flag],
        "env": [
            *variables,
            *_values({TLS_VARIABLE: TLS_DIRECTORY}),
            _field("TRIMTAB_POD_IP", "status.podIP"),
            _field("TRIMTAB_NODE", "spec.nodeName"),
            _field("TRIMTAB_ZONE", "metadata.labels['topology.kubernetes.io/zone']"),
        ],
        "ports": [
            {"name": "monitor", "containerPort": MONITOR_PORT},
            {"name": "echo", "containerPort": MONITOR_PORT, "protocol": "UDP"},
            {"name": "metrics", "containerPort": MONITOR_METRICS_PORT},
        ],
        "startupProbe": {"tcpSocket": {"port": MONITOR_PORT}, "periodSeconds": 1, "failureThreshold": 120},
        "securityContext": {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # iperf3 keeps its buffers in a file under /tmp.
        "volumeMounts": [_TLS_MOUNT, {"name": _TMP_VOLUME, "mountPath": "/tmp"}],  # noqa: S108
    }


def _volumes(job: TrainingJob, given: Iterable[Object], trainer: Object) -> list[Object]:
    shared_memory = f"{_SHARED_MEMORY_GIB * job.spec.processes_per_worker}Gi"
    ours: list[Object] = [
        _files(_TLS_VOLUME, job, AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE),
        _files(_JOB_VOLUME, job, JOB_KEY),
        {"name": RUN_VOLUME, "emptyDir": {}},
        {"name": _SHM_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}},
        {"name": _TMP_VOLUME, "emptyDir": {}},
        {"name": _CHECKPOINT_VOLUME, "persistentVolumeClaim": {"claimName": claim_name(job)}},
    ]
    taken = {volume.get("name") for volume in given}
    mounted = {mount["name"] for mount in trainer["volumeMounts"]}
    return [each for each in ours if each["name"] not in taken and each["name"] in mounted | {_TMP_VOLUME, _TLS_VOLUME}]


def _files(volume: str, job: TrainingJob, *names: str) -> Object:
    """Return a volume with files of the job's Secret."""
    items = [{"key": name, "path": name} for name in names]
    return {"name": volume, "secret": {"secretName": shared_name(job.metadata.name), "items": items}}


def _peers(job: TrainingJob, namespace: str, attempt: int) -> str:
    """Return the addresses of all monitors, by rank, as a pattern: a list could exceed the limit of one argument."""
    return f"{_host(job, namespace, attempt, f'{{0..{job.spec.workers - 1}}}')}:{MONITOR_PORT}"


def _host(job: TrainingJob, namespace: str, attempt: int, worker: int | str) -> str:
    name = job.metadata.name
    return worker_host(name, namespace, worker, attempt_name(name, attempt))


def _interface(trainer: Object) -> tuple[str, list[Object]]:
    """Return the device that gradients cross, and the variables that the monitor needs to know it.

    The device is the user's (on the host's network), or else a pod's own.
    """
    given = [variable for variable in trainer["env"] if variable["name"] == _INTERFACE_VARIABLE]
    if given and given[0].get("valueFrom"):
        return f"$({_INTERFACE_VARIABLE})", given[:1]
    return str((given and given[0].get("value")) or POD_INTERFACE), []


def _values(variables: dict[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
