"""A TrainingJob (``trimtab.dev/v1alpha1``): the one source of its validation, its CRD schema and its reference page.

YAML is camelCase, Python snake_case. Unknown fields of a user's file are refused, except inside the pod template, which
is Kubernetes' own; who reads what was checked before ignores them (`load_job_file`). Validators raise ValueError with
the remedy; `load_training_job` turns that into a line naming file and field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trimtab_api.catalogue import expand, parse_plan_text, rank_count_error
from trimtab_api.names import MOST_WORKERS
from trimtab_api.trainingjob.communication import Communication
from trimtab_api.trainingjob.fields import ApiModel, Ruled, enum, invalid_value, obeys
from trimtab_api.trainingjob.pod_template import TRAINER_CONTAINER, check_template
from trimtab_api.trainingjob.quantities import Duration, Size, as_written
from trimtab_api.trainingjob.rules import LONGEST_NAME, NAME_PATTERN

API_VERSION = "trimtab.dev/v1alpha1"
KIND = "TrainingJob"

#: Seconds of a year, the longest that anything here may last.
_YEAR = 365 * 24 * 3600
#: Kubernetes' default of a pod's terminationGracePeriodSeconds, and that of a job which writes a checkpoint meanwhile:
#: up to 20 s for the step under way, 30 s to write, and what the worker keeps for itself.
_GRACE, _GRACE_WITH_CHECKPOINT = 30.0, 60.0
Interface = Annotated[str, Field(max_length=15), obeys("spec.network.secondInterface")]


class Network(Ruled):
    """The settings of network measurement."""

    at = "spec.network"

    probe_interval: Annotated[Duration, obeys("spec.network.probeInterval")] = Field(
        as_written("2s"),
        description="Time between two bandwidth tests of the job, budget permitting; it doubles, up to 64 times as"
        " long, while tests confirm what is known.",
    )
    probe_budget: float = Field(
        0.02, gt=0, le=0.5, description="Most of a host's time that bandwidth tests may take, on average."
    )
    probe_bytes_per_day: Size = Field(
        as_written("50GB"),
        description="Most bytes that bandwidth tests may send and receive at one worker in 24 hours. Lower it where"
        " traffic is paid for.",
    )
    probe: Literal["auto", "iperf3", "native"] = Field(
        "auto",
        description="What sends the data of bandwidth tests: `iperf3`; `native`, the monitor's own threads; or `auto`,"
        " iperf3 up to 10 Gbit/s, between hosts that have it, and as long as its threads keep up; else native.",
    )
    second_interface: Interface | None = Field(
        None,
        description="A second network interface of every worker, such as `net1`. `deft`, `priority` and `us-byte` then"
        " send over both at once; how much slower it is than the first is measured as training begins. For models on"
        " the CPU. Left out: there is one link.",
    )


class VolumeClaim(Ruled):
    """A volume claim for checkpoints: one that exists, or one that is made for the job."""

    at = "spec.checkpoint.volumeClaim"

    existing: Annotated[str, obeys("spec.checkpoint.volumeClaim.existing")] | None = Field(
        None,
        max_length=253,
        description="Name of a claim in the job's namespace, which outlives the job. Each job has a folder of its own"
        " there, by the job's name.",
    )
    size: Annotated[str, obeys("spec.checkpoint.volumeClaim.size")] | None = Field(
        None,
        max_length=32,
        description="Size of a claim that is made for the job and deleted with it, such as `10Gi`.",
    )
    storage_class_name: str | None = Field(
        None, max_length=253, description="Storage class of the claim that is made. Left out: the cluster's default."
    )
    access_modes: tuple[Literal["ReadWriteMany", "ReadWriteOnce"], ...] | None = Field(
        None,
        strict=False,
        min_length=1,
        max_length=2,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Access modes of the claim that is made. Left out: `ReadWriteMany`, since all workers write to it."
        " `ReadWriteOnce` suits workers on one node.",
    )


class Checkpoint(Ruled):
    """Where a job's state is kept, so that a restart goes on from there."""

    at = "spec.checkpoint"

    path: Annotated[str, obeys("spec.checkpoint.path")] | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="A directory that every worker sees under this path, or a URL that fsspec knows, such as"
        " `s3://bucket/folder`. A job goes on from the newest whole checkpoint there. Either this or `volumeClaim`.",
    )
    volume_claim: VolumeClaim | None = Field(
        None,
        description="A volume that every worker mounts, in place of `path`. On one machine it is the folder"
        " `checkpoints` of the run directory.",
    )
    from_job: Annotated[str, Field(pattern=NAME_PATTERN, max_length=LONGEST_NAME)] | None = Field(
        None,
        description="The name that this job had before, whose checkpoints in `path` it goes on from. Left out:"
        " checkpoints of another name are refused.",
    )
    interval: Annotated[Duration, obeys("spec.checkpoint.interval")] = Field(
        as_written("10min"), description="Time between two checkpoints; a store that is too slow delays the next."
    )
    steps: int | None = Field(
        None, ge=1, description="Training steps between two checkpoints; if it is set, `interval` is not read."
    )
    keep: int = Field(2, ge=1, le=100, description="Whole checkpoints that stay; older ones are removed.")
    on_termination: bool = Field(
        True, description="Whether SIGTERM, as of a spot node that is taken back, writes one more checkpoint first."
    )
    in_memory: Annotated[Literal["neighbour"], enum(("neighbour",))] | None = Field(
        None,
        description="`neighbour`: each rank's state is also kept in the memory of its worker's host and of another one,"
        " so that a restart after the loss of one host needs no storage. Beside a place, or in place of one.",
    )
    in_memory_interval: Annotated[Duration, obeys("spec.checkpoint.inMemoryInterval")] = Field(
        as_written("1min"), description="Time between two checkpoints in memory."
    )
    in_memory_steps: int | None = Field(
        None, ge=1, description="Training steps between two in memory; if it is set, `inMemoryInterval` is not read."
    )
    in_memory_bytes: Size = Field(
        as_written("2GB"),
        description="Most memory that checkpoints take on a worker's host: four times what a worker's ranks hold, and"
        " on the first two workers four times the model and its optimizer.",
    )


class Target(Ruled):
    """The result whose time of arrival `trimtab compare` and the report show."""

    at = "spec.target"

    metric: str = Field(
        "accuracy", min_length=1, max_length=128, description="A metric that the training script reports."
    )
    value: float = Field(description="The value to reach; an accuracy is a share, more than 0 and at most 1.")


class Spec(ApiModel):
    """The training to run: command, number of workers, and settings."""

    workers: Annotated[int, obeys("spec.workers")] = Field(
        ge=1, description=f"Number of workers: pods, or their local equivalents; at most {MOST_WORKERS}."
    )
    processes_per_worker: int = Field(1, ge=1, le=64, description="Trainer processes in each worker, one a GPU.")
    seed: int = Field(0, ge=0, lt=2**31, description="Seed of everything random.")
    template: dict[str, Any] = Field(
        description="Kubernetes pod template, kept as it is; its container `trainer` runs the command.",
    )
    communication: Communication = Field(default_factory=Communication, description="How gradients cross the network.")
    network: Network = Field(default_factory=Network, description="How the network is measured.")
    checkpoint: Checkpoint | None = Field(
        None, description="Where the job's state is kept. Left out: a restart begins anew."
    )
    target: Target | None = Field(None, description="The result whose time of arrival is reported.")
    restart_policy: Literal["Never", "OnFailure"] = Field(
        "OnFailure",
        description="Whether all ranks restart together when a worker fails.",
    )
    max_restarts: int = Field(
        3,
        ge=0,
        le=10_000,
        description="Restarts before a failure is final; none on one machine if this, restartPolicy and checkpoint are"
        " left out.",
    )
    max_disruptions: int = Field(
        1000,
        ge=0,
        le=10_000,
        description="Restarts before another disruption (a drain, a preemption, a lost node) fails the job. They do not"
        " count toward maxRestarts. One machine ignores this.",
    )
    suspend: bool = Field(
        False,
        description="True: no pods run until it is false again, or, in a queue of Kueue, until that admits the job.",
    )
    managed_by: str = Field(
        "trimtab.dev/operator",
        min_length=1,
        max_length=253,
        description="The controller that looks after this job; others leave it alone.",
    )
    active_deadline_seconds: int | None = Field(
        None,
        ge=1,
        le=_YEAR,
        description="Seconds after which a job that still runs has failed; one that resumes gets them anew.",
    )
    progress_deadline_seconds: int | None = Field(
        None,
        ge=1,
        le=_YEAR,
        description="On a cluster, seconds without a new step after which all ranks restart, which maxRestarts counts; "
        "left out: twice communication.timeout, and only once a first step is done.",
    )
    ttl_seconds_after_finished: int | None = Field(
        None, ge=0, le=_YEAR, description="Seconds after which a finished job is deleted."
    )

    @property
    def num_ranks(self) -> int:
        """N, the number of trainer processes."""
        return self.workers * self.processes_per_worker

    @property
    def termination_grace_seconds(self) -> float:
        """Seconds from SIGTERM to SIGKILL: the template's, or else enough to write a checkpoint, if the job does."""
        given = self.template["spec"].get("terminationGracePeriodSeconds")
        if given is not None:
            return float(given)
        is_written = self.checkpoint is not None and self.checkpoint.on_termination
        return _GRACE_WITH_CHECKPOINT if is_written else _GRACE

    @property
    def trainer(self) -> dict[str, Any]:
        """The container that runs the user's command, as Kubernetes spells it."""
        containers: list[dict[str, Any]] = self.template["spec"]["containers"]
        return next(container for container in containers if container["name"] == TRAINER_CONTAINER)

    @model_validator(mode="after")
    def _check_collectives(self) -> Self:
        """Check that some collective that may be chosen runs on the job's number of ranks."""
        wanted, on_hosts = self.communication, [self.processes_per_worker]
        told = f"(this job has {self.num_ranks} ranks)"
        if wanted.plan is not None:
            if reason := rank_count_error(parse_plan_text(wanted.plan).collective, self.num_ranks, on_hosts):
                raise invalid_value(("communication", "plan"), wanted.plan, f"{reason} {told}")
            return self
        specs = [spec for name in wanted.collectives for spec in expand(name, self.num_ranks)]
        if all(reasons := [rank_count_error(spec, self.num_ranks) for spec in specs]):
            remedy = f"{reasons[0]} {told}"
            raise invalid_value(("communication", "collectives", 0), wanted.collectives[0], remedy)
        return self

    @model_validator(mode="after")
    def _check_template(self) -> Self:
        check_template(self.template)
        return self


class Metadata(BaseModel):
    """Kubernetes' own metadata; what matters here, the rest is kept as it is."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=LONGEST_NAME)] = Field(
        description="Name of the job; its pods and services are named after it."
    )
    labels: dict[str, str] | None = Field(None, description="Labels, which all that is made of the job has too.")
    annotations: dict[str, str] | None = Field(None, description="Annotations, which it has too.")


class TrainingJob(ApiModel):
    """A training job: the same file runs with `trimtab run` and with `kubectl apply`."""

    api_version: Literal["trimtab.dev/v1alpha1"] = Field(description="Always `trimtab.dev/v1alpha1`.")
    kind: Literal["TrainingJob"] = Field(description="Always `TrainingJob`.")
    metadata: Metadata = Field(description="Kubernetes' object metadata.")
    spec: Spec = Field(description="What to run, on how many workers, and how.")
    status: dict[str, Any] | None = Field(None, description="Written by the operator; ignored in a file.")

    def with_workers(self, number: int) -> Self:
        """Return the job with another number of workers."""
        return self.model_copy(update={"spec": self.spec.model_copy(update={"workers": number})})

    def with_claim_mounted_at(self, path: str) -> Self:
        """Return the job as its processes read it: what its launcher mounts for ``volumeClaim`` is a path by then."""
        checkpoint = self.spec.checkpoint
        if checkpoint is None or checkpoint.volume_claim is None:
            return self
        mounted = checkpoint.model_copy(update={"path": path, "volume_claim": None})
        return self.model_copy(update={"spec": self.spec.model_copy(update={"checkpoint": mounted})})
