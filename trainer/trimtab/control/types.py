"""The controller's input and output: plain immutable records, SI base units throughout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Literal

from trimtab_api.catalogue import (
    DEFAULT_COLLECTIVES,
    DENSE_COLLECTIVES,
    schedules,
    source_options,
    sources,
    sparsifiers,
    wires,
)

from trimtab.plan.constraints import Script, excluded
from trimtab.plan.plan import Plan

if TYPE_CHECKING:
    from trimtab.control.decision import Decision

Policy = Literal["adaptive", "static"]


@dataclass(frozen=True)
class ControllerSettings:
    """The user's settings of the control loop; the defaults are those of Flexible Communication, section 3-E.

    A job's own rules (`trimtab_api.trainingjob.rules`) hold by now. Here only those of a policy are checked.
    """

    policy: Policy = "adaptive"
    """*adaptive* chooses while training; *static* trains under `static_plan` (dense included) from the first step."""
    static_plan: Plan | None = None
    """The plan of a static policy, of which its fusion planner makes the buffers; None otherwise."""
    min_ratio: float = 0.001
    max_ratio: float = 0.1
    """Bounds of the compression ratio that may be chosen; between them it is continuous."""
    candidate_ratios: tuple[float, ...] = (0.1, 0.033, 0.011, 0.004, 0.001)
    """The ratios that trials measure; between them gain and compression time are interpolated in log c."""
    collectives: tuple[str, ...] = DEFAULT_COLLECTIVES
    """Sparse collectives that may be chosen. Dense is always allowed: it is the fallback of every guard rail."""
    sparsifiers: tuple[str, ...] = (sparsifiers.default,)
    """Sparsifiers that may be chosen, under a sparse plan."""
    fusions: tuple[str, ...] = ("single",)
    """Planners that may make the buffers; training starts with those of the first, and dense always has them."""
    schedules: tuple[str, ...] = (schedules.default,)
    """Schedules that may send the buffers; training starts with the first, and dense always has it."""
    sources: tuple[str, ...] = (sources.default,)
    """Sources that may be compressed: gradients, or updates of local steps."""
    sources_in_batches: tuple[str, ...] = ()
    """Sources that may be chosen besides in loops over ``session.batches``: at their end ranks come together."""
    dense_collectives: tuple[str, ...] = DENSE_COLLECTIVES
    """Collectives that may sum whole gradients and updates, beside `DENSE`, which always may."""
    dense_wires: tuple[str, ...] = tuple(name for name in wires.built_in if wires[name].rounds_dense)
    """Formats in which whole gradients may be sent, beside float32, in which they always may."""
    wires: tuple[str, ...] = tuple(name for name in wires.built_in if wires[name].is_default)
    """Formats in which selected values may be sent, by every one of `collectives`."""
    network_change: float = 0.10
    """Relative change of latency or of inverse bandwidth that reopens the choice."""
    gain_change: float = 0.10
    """Relative change of the average gain that reopens the choice."""
    gain_window: int = 20
    """Steps over which the gain is averaged."""
    trial_iterations: int = 10
    """Iterations of one trial."""
    exploration_share: float = 0.05
    """Share of the time that trials and solving may take, of the whole run and since the last trials."""
    speed_weight: float = 0.5
    """0 cares for gain alone, 1 for step time alone, 0.5 weighs them alike."""
    warmup_steps: int = 5
    """Steps before the first decision; fewer where steps are slow. They are dense where that costs little."""

    def in_loop_of(self, num_steps: float) -> ControllerSettings:
        """Return the settings in loops of so many steps over ``session.batches``: no round is longer than its loop."""
        sources = (*self.sources, *self.sources_in_batches)
        within = tuple(each for each in sources if source_options(each).local_steps <= num_steps)
        return replace(self, sources=within or self.sources, sources_in_batches=())

    def __post_init__(self) -> None:
        script = Script(is_adaptive=self.policy == "adaptive")
        for schedule, source in product(self.schedules, self.sources):
            if row := excluded(schedule, source, script):
                raise row.error(schedule, source, field=f"{row.field}s")

    def is_profile_news(self, *, is_first: bool) -> bool:
        """Return whether a profile may change the choice: the first, if there is one; any, if schedules are planned."""
        has_choice = len(self.fusions) * len(self.schedules) > 1
        return (is_first and has_choice) or any(schedules[each].is_planned for each in self.schedules)


@dataclass(frozen=True)
class OptimizerFamily:
    """The kind of optimizer, which decides how many more steps than dense a run needs under compression.

    `trimtab.control.cost_model.convergence` reads it.
    """

    name: str
    """The optimizer's class, as its user knows it."""
    kind: Literal["sgd", "adam", "unknown"]
    """*adam*: all that divide by a running size of the gradient. *unknown* is charged like it, and decisions say so."""
    has_mean_moments: bool = False
    """True if local steps leave it the second moments of mean gradients (`trimtab.engine.local_sgd.second_moments`)."""


@dataclass(frozen=True)
class ModelFacts:
    """The facts of model, ranks and machine that never change during a run."""

    num_elements: int
    """Gradient elements n; a gradient is 4n bytes."""
    tensor_sizes: tuple[int, ...]
    """Elements of each tensor, in backward order; they sum to `num_elements`."""
    num_ranks: int
    """N."""
    optimizer: OptimizerFamily = OptimizerFamily("SGD", "sgd")
    select_seconds_per_element: float = 1e-9
    """A first guess of what selection costs, until it is measured: one pass of a fused kernel on a busy core."""
    link_slowness: tuple[float, ...] = (1.0,)
    """Factor for each interface that joins the ranks: how much longer an exchange takes there than on the first."""
    shares_interface: bool = False
    """True if ranks may connect by further links over their first interface."""
    ranks_on_each: int = 1
    """Ranks of each host, which share its network device; 1 where hosts have unlike many."""


@dataclass(frozen=True)
class StepReport:
    """Rank 0's measurements of one training step, after synchronising the device."""

    step: int
    plan: Plan
    step_seconds: float
    """Wall time of the whole step: forward, backward, exchange, optimizer."""
    compute_seconds: float
    """Forward, backward and optimizer, without selection and communication; of the slowest rank, where it is known."""
    compress_seconds: float
    """Selection, packing and unpacking, summed over the buffers."""
    collective_seconds: float
    """Sending and waiting, summed over the buffers; of the rank that came last, and waited for nobody, where known."""
    num_bytes: int
    """Bytes this rank sent."""
    num_messages: int
    """Messages on the longest chain, summed over the buffers: the multiplier of alpha."""
    gain: float | None
    """1 - sum of squared residuals after / sum of squared accumulations before, over ranks; 1 for dense.

    None where the ranks did not come to tell each other.
    """
    residual_norm: float
    """Norm of this rank's residual after the step; 0 for dense."""
    finite: bool
    """True if every rank's gradient was finite (else the step was dropped everywhere)."""
    loss_scale: float = 1.0
    """Factor by which a GradScaler multiplied the loss; above 1, it still looks for a scale that gradients bear."""
    steps_per_epoch: float = 0
    """Steps of the loop over ``session.batches`` that it was one of, at whose end ranks with local steps meet again.

    Infinity where its length is not known; 0 where it was of no such loop, and where ranks could not leave local steps
    again, so that none are to be chosen by default.
    """
    loss: float | None = None
    """Before the step: the mean over ranks and over a round of local steps; None where the script does not tell it."""
    hidden_seconds: float = 0.0
    """Seconds more that the exchange may have taken: what others sent crossed while the last rank still computed.

    They are above 0 for local steps only: in a round ranks drift further apart than an exchange takes.
    """
    arrival_seconds: tuple[float, ...] = ()
    """Seconds by rank, from the end of the exchange before until it came to this one; empty if they are not known."""

    def exchange_seconds(self, predicted: float) -> float:
        """Return what the exchange took, as near to ``predicted`` [s] as what was measured allows."""
        return min(max(self.collective_seconds, predicted), self.collective_seconds + self.hidden_seconds)


@dataclass(frozen=True)
class TrialReport:
    """Rank 0's measurements of one candidate: medians over the iterations of the trial, but for the last fields."""

    plan: Plan
    step_seconds: float
    compute_seconds: float
    compress_seconds: float
    collective_seconds: float
    num_bytes: int
    num_messages: int
    gain: float | None
    """None where too few exchanges ended to tell."""
    num_steps: int
    """Iterations that were measured."""
    wall_seconds: float
    """Seconds that this candidate cost, its share of snapshot and restore included."""


@dataclass(frozen=True)
class KeepGoing:
    """Train on under the present plan."""


@dataclass(frozen=True)
class RunTrials:
    """Run each plan for some iterations from a snapshot, restore it, and report by `Controller.observe_trials`."""

    plans: tuple[Plan, ...]
    """Shortest first; the budget may stop the list early, and a report may hold fewer than were asked for."""
    iterations: int
    """At most the steps left in the epoch."""
    reason: str
    """One plain sentence."""


@dataclass(frozen=True)
class SwitchPlan:
    """Adopt the plan, whose version is new, on every rank at the same step."""

    plan: Plan
    decision: Decision
    """The decision that tells why; `Controller.log` drains the same record."""


Action = KeepGoing | RunTrials | SwitchPlan
