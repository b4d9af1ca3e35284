"""Names that parts of Trimtab must agree on, in one place; names of schemes are in `trimtab_api.catalogue`."""

from __future__ import annotations

import hashlib
import re
from ipaddress import IPv4Network

#: Workers that one job's monitors were proven with: they measure every pair, and worker 0's tells all of all of them.
MOST_WORKERS = 32

#: Addresses of the emulator's hosts, on this machine alone.
EMULATED_SUBNET = IPv4Network("10.77.0.0/24")

# On a cluster: what the operator puts into every pod, and what the programs in it look for there.

#: Directory of the job's certificates, named by TRIMTAB_TLS_DIR in every container.
TLS_DIRECTORY = "/var/run/trimtab/tls"
TLS_VARIABLE = "TRIMTAB_TLS_DIR"
#: The attempt that a pod belongs to: the number of restarts of all ranks before it.
ATTEMPT_VARIABLE = "TRIMTAB_ATTEMPT"
#: Addresses of the processes that keep checkpoints in memory, one for each worker, with commas between them.
KEEPERS_VARIABLE = "TRIMTAB_KEEPERS"
#: The files there, and the keys of the job's Secret: PEM of the authority, and of the certificate that all share.
AUTHORITY_FILE = "ca.crt"
CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"
#: The resolved TrainingJob, as JSON. Named by TRIMTAB_JOB in the trainer's container.
JOB_FILE = "/var/run/trimtab/job/job.json"
#: Directory of runs in a pod. TRIMTAB_RUN_DIR in the trainer's container names the folder of its job there, by
#: namespace and name.
RUN_DIRECTORY = "/var/run/trimtab/run"
#: Where the volume claim of ``spec.checkpoint`` is mounted; a job's checkpoints are in a folder of its name there.
CHECKPOINT_DIRECTORY = "/var/run/trimtab/checkpoints"
#: Workers that the job has in this attempt: its file in the pod has as many as it was created with.
WORKERS_VARIABLE = "TRIMTAB_WORKERS"
#: Variables that only the launcher may set in a trainer's container.
RESERVED_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TRIMTAB_JOB",
    "TRIMTAB_RUN_DIR",
    "TRIMTAB_MONITOR",
    "TRIMTAB_SEED",
    "TRIMTAB_WORLD_SIZE",
    "TRIMTAB_TLS_DIR",
    "TRIMTAB_POD_IP",
    "TRIMTAB_ATTEMPT",
    "TRIMTAB_WORKERS",
    "TRIMTAB_KEEPERS",
)
#: Command of a trainer's container, followed by ``--``, the user's command and its `args`.
WORKER_COMMAND = ("trimtab", "worker")
#: Command of a keeper of checkpoints in memory.
KEEPER_COMMAND = ("trimtab", "keeper")
#: gRPC of a worker's keeper of checkpoints in memory.
KEEPER_PORT = 8473
#: Engines of bandwidth tests: iperf3, the monitor's own threads, or whichever suits the link and the hosts.
PROBES = ("auto", "iperf3", "native")
#: Port of a worker's monitor for gRPC (TCP) and echoes (UDP); bandwidth tests use random ports.
MONITOR_PORT = 29400
#: Prometheus metrics of a worker's monitor.
MONITOR_METRICS_PORT = 29402
#: Port of rank 0 for the rendezvous.
MASTER_PORT = 29500
#: gRPC of rank 0's `trimtab.trainer.v1.TrainerStatus`.
TRAINER_STATUS_PORT = 8471
#: Prometheus metrics of the run, served beside rank 0.
TRAINER_METRICS_PORT = 8472
#: The network device of a pod, unless the trainer's container says otherwise by GLOO_SOCKET_IFNAME.
POD_INTERFACE = "eth0"
#: Longest name of a StatefulSet, whose pods have a label of its name and a hash.
_LONGEST_STATEFUL_SET = 52
_ATTEMPT_SUFFIX = re.compile(r"-r[0-9]+$")


def attempt_name(job: str, attempt: int) -> str:
    """Return the name of the Kubernetes Job of one attempt, which also begins its pods' host names.

    Each attempt has a name of its own, so that no pod of an earlier attempt is found under a name of this one. With the
    longest name of a job, the most workers and a million attempts a pod's host name has the 63 characters allowed.
    """
    return f"{job}-r{attempt}" if attempt else job


def possible_jobs(batch_job: str) -> set[str]:
    """Return the TrainingJobs, one or two, that may have a Kubernetes Job of this name."""
    return {batch_job, _ATTEMPT_SUFFIX.sub("", batch_job)}


def worker_host(job: str, namespace: str, worker: int | str, batch_job: str) -> str:
    """Return the DNS name of one worker's pod, for which the job's headless Service answers.

    Args:
        job: Name of the TrainingJob.
        namespace: Its namespace.
        worker: The pod's completion index, or a pattern of indices, such as ``{0..7}``, for several pods.
        batch_job: Name of the Kubernetes Job that made the pod.
    """
    return f"{batch_job}-{worker}.{service_host(job, namespace)}"


def service_host(job: str, namespace: str) -> str:
    """Return the DNS name of the job's headless Service, which has the addresses of this attempt's pods."""
    return f"{job}.{namespace}.svc"


def keepers_name(job: str) -> str:
    """Return the name of the StatefulSet and the Service of a job's keepers; a long one is shortened by a hash."""
    name = f"{job}-keeper"
    if len(name) <= _LONGEST_STATEFUL_SET:
        return name
    digest = hashlib.sha256(job.encode()).hexdigest()[:8]
    return f"{job[: _LONGEST_STATEFUL_SET - len(digest) - len('--keeper')]}-{digest}-keeper"


def keeper_host(job: str, namespace: str, worker: int | str) -> str:
    """Return the DNS name of one worker's keeper; ``*`` in place of the worker and its dash names all of them."""
    name = keepers_name(job)
    host = worker if worker == "*" else f"{name}-{worker}"
    return f"{host}.{service_host(name, namespace)}"
