"""The names that parts of Trimtab must agree on, in one place; those of schemes stand in `trimtab_api.catalogue`."""

from __future__ import annotations

from ipaddress import IPv4Network

#: Workers that one job's monitors were proven with: they measure every pair, and worker 0's tells all of all of them.
MOST_WORKERS = 32

#: Where the emulator's hosts live, on this machine alone.
EMULATED_SUBNET = IPv4Network("10.77.0.0/24")

# On a cluster: what the operator puts into every pod, and what the programs in it look for there.

#: Where the job's certificates are. Named by TRIMTAB_TLS_DIR in every container.
TLS_DIRECTORY = "/var/run/trimtab/tls"
TLS_VARIABLE = "TRIMTAB_TLS_DIR"
#: The files there, and the keys of the job's Secret: PEM of the authority, and of the certificate that all share.
AUTHORITY_FILE = "ca.crt"
CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"
#: The resolved TrainingJob, as JSON. Named by TRIMTAB_JOB in the trainer's container.
JOB_FILE = "/var/run/trimtab/job/job.json"
#: Where a worker's processes write metrics, decisions and logs. Named by TRIMTAB_RUN_DIR in the trainer's container.
RUN_DIRECTORY = "/var/run/trimtab/run"
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
)
#: What a trainer's container runs: this, then ``--``, then the user's command; its `args` follow.
WORKER_COMMAND = ("trimtab", "worker")
#: Where a worker's monitor listens for gRPC (TCP) and echoes (UDP); iperf3 listens at the port above.
MONITOR_PORT = 29400
#: Prometheus metrics of a worker's monitor.
MONITOR_METRICS_PORT = 29402
#: Where rank 0 listens until all ranks have met.
MASTER_PORT = 29500
#: gRPC of rank 0's `trimtab.trainer.v1.TrainerStatus`.
TRAINER_STATUS_PORT = 8471
#: Prometheus metrics of the run, served beside rank 0.
TRAINER_METRICS_PORT = 8472
#: The network device of a pod, unless the trainer's container says otherwise by GLOO_SOCKET_IFNAME.
POD_INTERFACE = "eth0"


def worker_host(job: str, namespace: str, worker: int | str) -> str:
    """DNS name of one worker's pod, by its completion index; the job's headless Service answers for it.

    Of several by a pattern of indices, such as ``{0..7}``.
    """
    return f"{job}-{worker}.{service_host(job, namespace)}"


def service_host(job: str, namespace: str) -> str:
    """DNS name of the job's headless Service, which has the addresses of all of its pods."""
    return f"{job}.{namespace}.svc"
