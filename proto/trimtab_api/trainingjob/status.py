"""The status of a TrainingJob on a cluster: the operator alone writes it, ``kubectl get tj`` and ``describe`` show it.

Points in time are RFC 3339 text, as Kubernetes writes them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

State = Literal["Pending", "Suspended", "Starting", "Running", "Restarting", "Succeeded", "Failed"]
#: States that a job never leaves.
FINAL_STATES: tuple[State, ...] = ("Succeeded", "Failed")

ConditionType = Literal["Ready", "Started", "Suspended", "NetworkDegraded", "CheckpointFailing", "Succeeded", "Failed"]


class _Part(BaseModel):
    """A part of the status. Fields of newer versions are ignored, so that an older operator can read them."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Condition(_Part):
    """One thing that is so, or not, or not known, since when, and why (Kubernetes' API conventions)."""

    type: ConditionType = Field(description="What is said: Ready is the summary of all others.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it is so.")
    reason: str = Field(max_length=1024, description="Why, in one word.")
    message: str = Field("", max_length=32768, description="Why, in a sentence.")
    last_transition_time: str = Field(
        description="When the status last changed.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: int = Field(description="Generation of the spec that this was said of.")


class Workers(_Part):
    """Numbers of workers by state."""

    active: int = Field(0, description="Pods that are pending or running.")
    ready: int = Field(0, description="Pods that are running and ready.")
    succeeded: int = Field(0, description="Pods that have ended well.")
    failed: int = Field(0, description="Pods that have failed since the last restart.")


class PlanStatus(_Part):
    """The plan by which gradients cross the network now."""

    version: int = Field(description="Increases with every change.")
    name: str = Field(description="RATIO/COLLECTIVE, or the name of a dense collective.")
    ratio: str = Field(description="Fraction of gradient elements sent; 1 is dense.")
    collective: str = Field(description="How gradients become one mean.")
    reason: str = Field(description="Why this plan.")
    adopted_at_step: int = Field(description="First step that ran under it.")


class NetworkStatus(_Part):
    """The slowest link of the job's network."""

    latency: str = Field(description="Largest one-way latency, such as 5ms.")
    bandwidth: str = Field(description="Smallest bandwidth, such as 1Gbps.")
    bandwidth_bytes_per_second: int = Field(description="The same bandwidth as a number.")
    best_bandwidth_bytes_per_second: int = Field(
        description="The most that it has been of late: what this has above the bandwidth halves every 6 hours."
    )
    stale: bool = Field(description="True: the figures are too old to trust.")


class CheckpointStatus(_Part):
    """The last whole checkpoint, from which a restart goes on."""

    step: int = Field(description="Optimizer steps that it holds.")
    time: str = Field(description="When it was whole.", json_schema_extra={"format": "date-time"})
    bytes: int = Field(description="Its size: what rank 0 wrote of it, which is all but the other ranks' own parts.")
    seconds: float = Field(description="Seconds that writing it took beside training.")


class Status(_Part):
    """The operator's report on a job."""

    observed_generation: int = Field(0, description="Generation of the spec that this status is about.")
    state: State = Field("Pending", description="Where the job is in its life.")
    message: str = Field("", description="What there is to say about it, in one plain sentence.")
    conditions: tuple[Condition, ...] = Field(
        (),
        description="What is so, since when, and why.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    workers: Workers = Field(default_factory=Workers, description="How many workers are in which state.")
    restarts: int = Field(0, description="How often all ranks have been restarted together.")
    disruptions: int = Field(
        0,
        description="Restarts that maxRestarts does not count: a node went away or was needed, or the workers changed.",
    )
    restarts_in_a_row: int = Field(
        0, description="Restarts since an attempt last went well for ten minutes; the more, the longer the next waits."
    )
    restarts_without_step: int = Field(
        0, description="The last restarts in a row that failed before their first step; after two the job has failed."
    )
    memory_evictions_in_a_row: int = Field(
        0, description="Attempts in a row that nodes short of memory ended; beyond three they count as failures."
    )
    last_restart_reason: str = Field("", description="Why ranks were last restarted.")
    last_restart_time: str | None = Field(
        None,
        description="When ranks restarted last, or are about to: where restarts follow each other fast, they wait.",
        json_schema_extra={"format": "date-time"},
    )
    start_time: str | None = Field(
        None, description="When its pods were first asked for.", json_schema_extra={"format": "date-time"}
    )
    completion_time: str | None = Field(
        None, description="When it succeeded or failed.", json_schema_extra={"format": "date-time"}
    )
    step: int | None = Field(None, description="Optimizer steps done.")
    loss: float | None = Field(None, description="Loss of the last step, as rank 0's script passed it.")
    gain: float | None = Field(
        None, description="Part of the gradient, with what was held back of it before, that got through: in [0, 1]."
    )
    last_progress_time: str | None = Field(
        None,
        description="When training was last seen to be further than before.",
        json_schema_extra={"format": "date-time"},
    )
    step_time: str | None = Field(None, description="Median time of recent steps, such as 120ms.")
    plan: PlanStatus | None = Field(None, description="How gradients cross the network now, and why.")
    network: NetworkStatus | None = Field(None, description="The slowest link of the job's network.")
    checkpoint: CheckpointStatus | None = Field(
        None, description="The last whole checkpoint, from which a restart goes on."
    )
    last_update_time: str | None = Field(
        None, description="When this status was last written.", json_schema_extra={"format": "date-time"}
    )

    @property
    def is_final(self) -> bool:
        """True if the job has succeeded or failed for good."""
        return self.state in FINAL_STATES

    def condition(self, kind: ConditionType) -> Condition | None:
        """Return the condition of that type; None if there never was one."""
        return next((condition for condition in self.conditions if condition.type == kind), None)
