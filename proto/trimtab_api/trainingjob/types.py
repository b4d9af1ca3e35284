"""A TrainingJob (``trimtab.dev/v1alpha1``): the one source of its validation, its CRD schema and its reference page.

YAML is camelCase, Python snake_case. Unknown fields of a user's file are refused, except inside the pod template, which
is Kubernetes' own; who reads what was checked before ignores them (`load_job_file`). Validators raise ValueError with
the remedy; `load_training_job` turns that into a line naming file and field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from trimtab_api.catalogue import (
    DEFAULT_COLLECTIVES,
    SPARSE_COLLECTIVES,
    SPARSIFIERS,
    Axis,
    collectives,
    planners,
    read_plan,
    schedules,
    sparsifiers,
    why_not,
)
from trimtab_api.errors import UserError
from trimtab_api.names import MOST_WORKERS
from trimtab_api.trainingjob.quantities import BufferSize, Duration, as_written
from trimtab_api.trainingjob.rules import STATIC_PLAN_SAYS_LOCAL_STEPS, TOO_MANY_WORKERS

API_VERSION = "trimtab.dev/v1alpha1"
KIND = "TrainingJob"
#: The container of the pod template that runs the user's command.
TRAINER_CONTAINER = "trainer"

#: Seconds of a year, the longest that anything here may last.
_YEAR = 365 * 24 * 3600

#: What Kubernetes takes for the name of an environment variable.
_VARIABLE_NAME = re.compile(r"[ -<>-~]+")
#: Bytes of one argument or variable that Linux gives a process (MAX_ARG_STRLEN), the name of a variable left out.
_LONGEST_WORD = 120_000
#: What names of network interfaces are made of; Linux takes 15 characters.
_INTERFACE, _INTERFACE_REMEDY = r"^[A-Za-z0-9][-_.A-Za-z0-9]*$", "name it as `ip link` lists it, such as net1"
_DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"

#: Where a field is: names, and numbers in lists.
Location = tuple[str | int, ...]


class Strict(BaseModel):
    """Refuses unknown fields, takes no number for a string nor a string for a number, and never changes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_default=True,
        allow_inf_nan=False,
    )


def _check_plan(text: str) -> str:
    """A plan's text (`trimtab_api.catalogue.plan_text`)."""
    try:
        read_plan(text)
    except UserError as error:
        if error.field == "collective":
            raise ValueError(f"not a sparse collective; choose from {', '.join(_sparse())}") from None
        if error.field == "ratio" or error.remedy.startswith("write dense"):
            remedy = "write dense, or RATIO/COLLECTIVE with a ratio in (0, 1), such as 0.01/all-gather"
            raise ValueError(remedy) from None
        raise ValueError(error.remedy if error.field == "plan" else str(error)) from None
    return text


def _check_probe_interval(seconds: float) -> float:
    if seconds < 0.1:
        raise ValueError("must be at least 100ms")
    return seconds


def _check_workers(workers: int) -> int:
    if workers > MOST_WORKERS:
        raise ValueError(TOO_MANY_WORKERS)
    return workers


def _check_timeout(seconds: float) -> float:
    if not 1 <= seconds <= 24 * 3600:
        raise ValueError("must be at least 1s and at most 24h")
    return seconds


def _check_interface(name: str) -> str:
    if not re.fullmatch(_INTERFACE, name):
        raise ValueError(_INTERFACE_REMEDY)
    return name


def _one_of(known: Callable[[], Iterable[str]]) -> AfterValidator:
    """A string that is one of the known names."""

    def check(name: str) -> str:
        names = tuple(known())
        if name not in names:
            raise ValueError(f"not known; choose from {', '.join(names)}")
        return name

    return AfterValidator(check)


def _spec_of(axis: Axis[Any]) -> AfterValidator:
    """A scheme of the axis with its options, in the one text that it has."""

    def check(text: str) -> str:
        try:
            return axis.canonical(text)
        except UserError as error:
            raise ValueError(error.remedy) from None

    return AfterValidator(check)


def _enum(known: tuple[str, ...]) -> Any:
    return Field(json_schema_extra={"enum": list(known)})


def _wrong(field: Location, value: Any, remedy: str) -> PydanticCustomError:
    """The error of one field inside a model, which only its neighbours show to be wrong."""
    return PydanticCustomError("wrong_field", "{remedy}", {"remedy": remedy, "field": field, "value": value})


#: More would be a job that hardly trains together.
MOST_LOCAL_STEPS = 1024


def _sparse() -> Iterable[str]:
    return (row.name for row in collectives.rows() if not row.is_dense)


Ratio = Annotated[float, Field(gt=0, lt=1)]
SparseCollective = Annotated[str, _one_of(_sparse), _enum(SPARSE_COLLECTIVES)]
Sparsifier = Annotated[str, _one_of(sparsifiers.names), _enum(SPARSIFIERS)]
_INTERFACE_RULE = {"rule": f"self.matches(r'{_INTERFACE}')", "message": _INTERFACE_REMEDY}
Interface = Annotated[
    str,
    Field(max_length=15, json_schema_extra={"x-kubernetes-validations": [_INTERFACE_RULE]}),
    AfterValidator(_check_interface),
]
Planner = Annotated[str, Field(max_length=512), _spec_of(planners)]
Schedule = Annotated[str, Field(max_length=512), _spec_of(schedules)]


class RatioBounds(Strict):
    """Compression ratios that may be chosen: the fraction of gradient elements sent."""

    min: Ratio = Field(0.001, description="Least ratio that may be chosen.")
    max: Ratio = Field(0.1, description="Largest sparse ratio that may be chosen; dense is always allowed.")
    candidates: tuple[Ratio, ...] = Field(
        (0.1, 0.033, 0.011, 0.004, 0.001),
        strict=False,
        min_length=1,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Ratios that trials measure; between them gain and compression time are interpolated in log ratio.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min > self.max:
            raise _wrong(("min",), self.min, f"is more than max ({self.max:g}); lower it or raise max")
        _check_each_once(("candidates",), self.candidates)
        for index, candidate in enumerate(self.candidates):
            if not self.min <= candidate <= self.max:
                remedy = f"lies outside min..max ({self.min:g}..{self.max:g}); remove it or widen the bounds"
                raise _wrong(("candidates", index), candidate, remedy)
        return self


class Fusion(Strict):
    """Which tensors share a buffer."""

    buffer_size: BufferSize = Field(
        as_written("25MB"),
        description="Gradient bytes at which a fusion buffer is closed, such as 25MB; `single`: one buffer for all.",
    )
    selection: Literal["ahead", "behind"] = Field(
        "behind", description="Select elements in each tensor (ahead of fusion) or in each buffer (behind it)."
    )
    alternatives: tuple[Planner, ...] = Field(
        (),
        strict=False,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Further fusion planners that an Adaptive policy may choose from, such as `single` or"
        " `equal:buffers=5`.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_each_once(("alternatives",), self.alternatives)
        return self


class Triggers(Strict):
    """What reopens the choice of a plan."""

    network: float = Field(
        0.1, gt=0, le=10, description="Relative change of latency or of inverse bandwidth that reopens the choice."
    )
    gain: float = Field(0.1, gt=0, le=10, description="Relative change of the average gain that reopens the choice.")


class Trials(Strict):
    """How candidates are tried out while training."""

    iterations: int = Field(10, ge=3, le=1000, description="Iterations of one trial; fewer than 3 tell nothing.")
    budget: float = Field(
        0.05, ge=0, le=1, description="Share of the time that trials and solving together may take; 0: no trials."
    )


class LocalSteps(Strict):
    """How many steps each rank's own optimizer may take between two exchanges of what they did to the weights.

    0: ranks exchange gradients, and step together. 1: they exchange updates, after each step. More: they part, and meet
    again at the end of so many steps, or of the loop over ``session.batches``.
    """

    min: int = Field(0, ge=0, le=MOST_LOCAL_STEPS, description="Fewest; 0: gradients.")
    max: int = Field(16, ge=0, le=MOST_LOCAL_STEPS, description="Most; 0: gradients alone.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min > self.max:
            raise _wrong(("min",), self.min, f"is more than max ({self.max}); lower it or raise max")
        return self


class Communication(Strict):
    """How gradients cross the network."""

    policy: Literal["Adaptive", "Static"] = Field(
        "Adaptive", description="Adaptive: keep choosing the plan while training. Static: train under `plan`."
    )
    plan: Annotated[str, Field(max_length=512), AfterValidator(_check_plan)] | None = Field(
        None,
        description="The plan of a Static policy: `dense`, or RATIO/COLLECTIVE such as `0.01/all-gather`; then, by"
        " slashes, axes that are not as the fields beside it say, such as `sparsifier=topk`.",
    )
    ratio: RatioBounds = Field(default_factory=RatioBounds, description="Compression ratios that may be chosen.")
    collectives: tuple[SparseCollective, ...] = Field(
        DEFAULT_COLLECTIVES,
        strict=False,
        min_length=1,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Sparse collectives that may be chosen; dense is always allowed.",
    )
    sparsifier: Sparsifier = Field("tracked", description="What picks the elements to send.")
    fusion: Fusion = Field(default_factory=Fusion, description="Which tensors share a buffer.")
    schedules: tuple[Schedule, ...] = Field(
        (schedules.default,),
        strict=False,
        min_length=1,
        max_length=20,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="When buffers may be sent; an Adaptive policy chooses from these and begins with the first. Only"
        " `deft` gives the optimizer gradients in later steps than their own, and fewer updates.",
    )
    local_steps: LocalSteps | None = Field(
        None,
        description="Local steps between exchanges that an Adaptive policy may choose. Left out: up to 16 under Adam"
        " and its kin in loops over `session.batches`, else none: gradients are exchanged in each step.",
    )
    triggers: Triggers = Field(default_factory=Triggers, description="What reopens the choice of a plan.")
    trials: Trials = Field(default_factory=Trials, description="How candidates are tried out while training.")
    warmup_steps: int = Field(
        5,
        ge=0,
        le=1_000_000,
        description="Steps before the first decision: dense, or under what the model chooses where that costs seconds.",
    )
    speed_weight: float = Field(
        0.5, ge=0, le=1, description="0 cares for gain alone, 1 for step time alone, 0.5 weighs them alike."
    )
    timeout: Annotated[Duration, AfterValidator(_check_timeout)] = Field(
        as_written("30min"),
        description="Longest that ranks wait for one that stands still, an evaluation on rank 0 alone included.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_each_once(("collectives",), self.collectives)
        _check_each_once(("schedules",), self.schedules)
        if self.policy == "Static" and self.plan is None:
            raise _wrong(("plan",), None, "a Static policy needs a plan, such as 0.01/all-gather")
        if self.policy == "Adaptive" and self.plan is not None:
            raise _wrong(("plan",), self.plan, "an Adaptive policy chooses its own; remove it or say policy: Static")
        if self.policy == "Static" and self.local_steps is not None:
            raise _wrong(("localSteps",), self.local_steps.model_dump(), STATIC_PLAN_SAYS_LOCAL_STEPS)
        return self


class Network(Strict):
    """How the network is measured."""

    probe_interval: Annotated[Duration, AfterValidator(_check_probe_interval)] = Field(
        as_written("2s"), description="Time between two bandwidth tests of the job, budget permitting."
    )
    probe_budget: float = Field(
        0.02, gt=0, le=0.5, description="Most of a host's time that bandwidth tests may take, on average."
    )
    second_interface: Interface | None = Field(
        None,
        description="A second network interface of every worker, such as `net1`. `deft`, `priority` and `us-byte` then"
        " send over both at once; how much slower it is than the first is measured as training begins. For models on"
        " the CPU. Left out: there is one link.",
    )


class Target(Strict):
    """The result whose time of arrival `trimtab compare` and the report show."""

    metric: str = Field(
        "accuracy", min_length=1, max_length=128, description="A metric that the training script reports."
    )
    value: float = Field(description="The value to reach; an accuracy is a share, more than 0 and at most 1.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if trouble := unreachable(self.metric, self.value):
            raise _wrong(("value",), self.value, trouble)
        return self


def unreachable(metric: str, value: float) -> str | None:
    """Why a metric can never have a value, or always has; None where it can be aimed at."""
    if metric == "accuracy" and not 0 < value <= 1:
        return "an accuracy is a share, more than 0 and at most 1, such as 0.97"
    return None


class Spec(Strict):
    """What to run, on how many workers, and how."""

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
        """A collective may be made for some numbers of ranks only; of several that may be chosen, one must fit."""
        wanted = self.communication
        if wanted.plan is not None:
            if reason := why_not(read_plan(wanted.plan).collective, self.num_ranks):
                raise _wrong(("communication", "plan"), wanted.plan, f"{reason} ({self.num_ranks} ranks here)")
        elif all(reasons := [why_not(name, self.num_ranks) for name in wanted.collectives]):
            remedy = f"{reasons[0]} ({self.num_ranks} ranks here)"
            raise _wrong(("communication", "collectives", 0), wanted.collectives[0], remedy)
        return self

    @model_validator(mode="after")
    def _check_template(self) -> Self:
        pod = self.template.get("spec")
        if not isinstance(pod, dict):
            raise _wrong(("template", "spec"), pod, "write a pod's spec with a container named trainer")
        containers = pod.get("containers")
        if not isinstance(containers, list) or not all(isinstance(each, dict) for each in containers):
            raise _wrong(("template", "spec", "containers"), containers, "write a list of containers")
        names = [each.get("name") for each in containers]
        if names.count(TRAINER_CONTAINER) != 1:
            remedy = f"name exactly one container {TRAINER_CONTAINER}; it runs the training command"
            raise _wrong(("template", "spec", "containers"), names, remedy)
        index = names.index(TRAINER_CONTAINER)
        _check_trainer(containers[index], ("template", "spec", "containers", index))
        _check_shapes(self.template, index)
        return self


def _check_shapes(template: dict[str, Any], trainer: int) -> None:
    """What the operator adds to must be what Kubernetes says it is; an API server sees the template only afterwards."""
    field, metadata = ("template", "metadata"), template.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise _wrong(field, metadata, "must hold fields of its own, indented beneath it")
    for kind in ("labels", "annotations"):
        texts = (metadata or {}).get(kind)
        if texts is None:
            continue
        if not isinstance(texts, dict):
            raise _wrong((*field, kind), texts, "write names and texts, such as {team: vision}")
        for name, text in texts.items():
            if not isinstance(text, str | None):
                raise _wrong((*field, kind, name), text, "must be text; put it in quotes")
    pod = template["spec"]
    for name in ("initContainers", "volumes"):
        _check_list_of_objects(pod.get(name), ("template", "spec", name))
    for name in ("ports", "volumeMounts"):
        container = pod["containers"][trainer]
        _check_list_of_objects(container.get(name), ("template", "spec", "containers", trainer, name))


def _check_list_of_objects(value: Any, field: Location) -> None:
    if value is not None and not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
        raise _wrong(field, value, "write a list, each of its items with fields of its own")


def _check_trainer(container: dict[str, Any], field: Location) -> None:
    """What starts the training: command, arguments, directory and environment, as an operating system takes them."""
    _check_words(container.get("command"), (*field, "command"))
    if container.get("args") not in (None, []):  # none, as Kubernetes takes them
        _check_words(container["args"], (*field, "args"))
    _check_text(container.get("workingDir"), (*field, "workingDir"))
    _check_environment(container.get("env"), (*field, "env"))


def _check_words(words: Any, field: Location) -> None:
    """A command: a list of strings, not empty."""
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise _wrong(field, words, "write a list of strings, such as [python, train.py]; quote numbers")
    for index, word in enumerate(words):
        _check_text(word, (*field, index))


def _check_environment(variables: Any, field: Location) -> None:
    """Variables as Kubernetes lists them, each with a name that a process can be given."""
    if variables is None:
        return
    if not isinstance(variables, list):
        raise _wrong(field, variables, "write a list, such as [{name: GREETING, value: hello}]")
    for index, each in enumerate(variables):
        if not isinstance(each, dict):
            raise _wrong((*field, index), each, "write a variable as {name: GREETING, value: hello}")
        name = each.get("name")
        if not isinstance(name, str) or not _VARIABLE_NAME.fullmatch(name):
            raise _wrong((*field, index, "name"), name, "name the variable in printable ASCII without =")
        _check_text(each.get("value"), (*field, index, "value"))


def _check_text(text: Any, field: Location) -> None:
    """Text that a process can be given, or nothing."""
    if text is None:
        return
    if not isinstance(text, str):
        raise _wrong(field, text, "must be text; put it in quotes")
    if "\0" in text:
        raise _wrong(field, text, "holds a NUL character, which no process can be given; remove it")
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise _wrong(field, ascii(text), "holds half a character (a surrogate); write it whole") from None
    if num_bytes > _LONGEST_WORD:
        remedy = f"has {num_bytes} bytes, and a process can be given {_LONGEST_WORD} in one word; put it in a file"
        raise _wrong(field, text, remedy)


def _check_each_once(field: Location, values: tuple[Any, ...]) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise _wrong((*field, index), value, "is there twice; remove one")


class Metadata(BaseModel):
    """Kubernetes' own metadata; only the name matters here, the rest is kept as it is."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=_DNS_LABEL, max_length=52)] = Field(
        description="Name of the job; its pods and services are named after it."
    )


class TrainingJob(Strict):
    """A training job: the same file runs with `trimtab run` and with `kubectl apply`."""

    api_version: Literal["trimtab.dev/v1alpha1"] = Field(description="Always `trimtab.dev/v1alpha1`.")
    kind: Literal["TrainingJob"] = Field(description="Always `TrainingJob`.")
    metadata: Metadata = Field(description="Kubernetes' object metadata.")
    spec: Spec = Field(description="What to run, on how many workers, and how.")
    status: dict[str, Any] | None = Field(None, description="Written by the operator; ignored in a file.")
