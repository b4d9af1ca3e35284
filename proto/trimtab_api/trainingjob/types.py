"""A TrainingJob (``trimtab.dev/v1alpha1``): the one source of its validation, its CRD schema and its reference page.

YAML is camelCase, Python snake_case. Unknown fields of a user's file are refused, except inside the pod template, which
is Kubernetes' own; who reads what was checked before ignores them (`load_job_file`). Validators raise ValueError with
the remedy; `load_training_job` turns that into a line naming file and field.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from trimtab_api.catalogue import parse_plan_text, rank_count_error
from trimtab_api.names import MOST_WORKERS
from trimtab_api.trainingjob.communication import Communication
from trimtab_api.trainingjob.fields import ApiModel, invalid_value
from trimtab_api.trainingjob.pod_template import TRAINER_CONTAINER, check_template
from trimtab_api.trainingjob.quantities import Duration, Size, as_written
from trimtab_api.trainingjob.rules import TOO_MANY_WORKERS

API_VERSION = "trimtab.dev/v1alpha1"
KIND = "TrainingJob"

#: Seconds of a year, the longest that anything here may last.
_YEAR = 365 * 24 * 3600
#: Valid names of network interfaces; Linux takes 15 characters.
_INTERFACE, _INTERFACE_REMEDY = r"^[A-Za-z0-9][-_.A-Za-z0-9]*$", "name it as `ip link` lists it, such as net1"
_DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


def _check_probe_interval(seconds: float) -> float:
    if seconds < 0.1:
        raise ValueError("must be at least 100ms")
    return seconds


def _check_workers(workers: int) -> int:
    if workers > MOST_WORKERS:
        raise ValueError(TOO_MANY_WORKERS)
    return workers


def _check_interface(name: str) -> str:
    if not re.fullmatch(_INTERFACE, name):
        raise ValueError(_INTERFACE_REMEDY)
    return name


_INTERFACE_RULE = {"rule": f"self.matches(r'{_INTERFACE}')", "message": _INTERFACE_REMEDY}
Interface = Annotated[
    str,
    Field(max_length=15, json_schema_extra={"x-kubernetes-validations": [_INTERFACE_RULE]}),
    AfterValidator(_check_interface),
]


class Network(ApiModel):
    """The settings of network measurement."""

    probe_interval: Annotated[Duration, AfterValidator(_check_probe_interval)] = Field(
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


def _check_checkpoint_interval(seconds: float) -> float:
    if seconds < 1:
        raise ValueError("must be at least 1s")
    return seconds


class Checkpoint(ApiModel):
    """Where a job's state is kept, so that a restart goes on from there."""

    path: str = Field(
        min_length=1,
        max_length=1024,
        description="A directory that every worker sees under this path, such as a mounted volume claim, or a URL that"
        " fsspec knows, such as `s3://bucket/folder`. Credentials come from the environment of the container. A job"
        " that finds checkpoints there goes on from the newest whole one.",
    )
    interval: Annotated[Duration, AfterValidator(_check_checkpoint_interval)] = Field(
        as_written("10min"), description="Time between two checkpoints; a store that is too slow delays the next."
    )
    steps: int | None = Field(
        None, ge=1, description="Training steps between two checkpoints; if it is set, `interval` is not read."
    )
    keep: int = Field(2, ge=1, le=100, description="Whole checkpoints that stay; older ones are removed.")
    on_termination: bool = Field(
        True, description="Whether SIGTERM, as of a spot node that is taken back, writes one more checkpoint first."
    )


class Target(ApiModel):
    """The result whose time of arrival `trimtab compare` and the report show."""

    metric: str = Field(
        "accuracy", min_length=1, max_length=128, description="A metric that the training script reports."
    )
    value: float = Field(description="The value to reach; an accuracy is a share, more than 0 and at most 1.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if trouble := unreachable(self.metric, self.value):
            raise invalid_value(("value",), self.value, trouble)
        return self


def unreachable(metric: str, value: float) -> str | None:
    """Return why a metric can never have a value, or always has; None if it can be aimed at."""
    if metric == "accuracy" and not 0 < value <= 1:
        return "an accuracy is a share, more than 0 and at most 1, such as 0.97"
    return None


class Spec(ApiModel):
    """The training to run: command, number of workers, and settings."""

    workers: Annotated[int, AfterValidator(_check_workers)] = Field(
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
        description="Restarts before a failure is final; none on one machine if this and restartPolicy are left out.",
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
    def trainer(self) -> dict[str, Any]:
        """The container that runs the user's command, as Kubernetes spells it."""
        containers: list[dict[str, Any]] = self.template["spec"]["containers"]
        return next(container for container in containers if container["name"] == TRAINER_CONTAINER)

    @model_validator(mode="after")
    def _check_collectives(self) -> Self:
        """Check that some collective that may be chosen runs on the job's number of ranks."""
        wanted, on_hosts = self.communication, [self.processes_per_worker]
        if wanted.plan is not None:
            if reason := rank_count_error(parse_plan_text(wanted.plan).collective, self.num_ranks, on_hosts):
                raise invalid_value(("communication", "plan"), wanted.plan, f"{reason} ({self.num_ranks} ranks here)")
        elif all(reasons := [rank_count_error(name, self.num_ranks) for name in wanted.collectives]):
            remedy = f"{reasons[0]} ({self.num_ranks} ranks here)"
            raise invalid_value(("communication", "collectives", 0), wanted.collectives[0], remedy)
        return self

    @model_validator(mode="after")
    def _check_template(self) -> Self:
        check_template(self.template)
        return self


class Metadata(BaseModel):
    """Kubernetes' own metadata; what matters here, the rest is kept as it is."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=_DNS_LABEL, max_length=52)] = Field(
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
