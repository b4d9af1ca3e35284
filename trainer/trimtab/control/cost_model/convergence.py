"""The convergence slowdown: steps over dense's, since error feedback applies gradients late, by optimizer family.

docs/explanation/convergence-under-compression.md explains it for readers.

Nothing is lost: what a step does not send waits in the residual. What the wait costs depends on the optimizer.

SGD adds up what arrives, whenever that is. With gain g, the residual's norm is ``sqrt(1/g - 1)`` times that of what was
sent, and training stays behind dense training by a number of steps that grows with it. It is the same number whatever
the learning rate, and however long the job trains.

Where ranks exchange *updates* of H local steps, what is held back waits for rounds instead of steps, and what a round
has made counts from its end on. Which batches a rank's own optimizer sees makes no difference to SGD: a sum is a sum.

Adam divides by the root of a running mean of squares, which lumps raise more than a steady flow of the same sum: it
loses a factor, however long the job trains. It treats small elements like large ones, so what counts is how often an
element is heard of, and not the gain, which is nearly all of large elements. Under updates it
sees no lumps, but each rank's sees its own batches alone: what that costs, and what compression adds to it, is a table
of its own.

Values that are rounded are charged for what that takes as if so much of each had to be sent again: the careful edge,
for it waits a step and no more.

A schedule that merges several iterations into one update is charged for as many steps: an update by the average of
their gradients does the work of one. That its batch is larger counts for nothing here. Merged by their sum, each does
its work. What the delay costs hangs on the learning rate: nothing is charged until the job's own loss falls short of
what its gradients promise, or has risen when updates came late. Then a sum does no more than an average, and both pay
for the delay (table `schedules` of benchmarks/results).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import exp, log, log10

from trimtab_api.catalogue import wires

from trimtab.control.types import ModelFacts, OptimizerFamily
from trimtab.plan.plan import Plan

#: The power of the residual's relative norm with which they grow: between that of gradients that all point one way, 2,
#: and of such as have nothing in common, 1.
_POWER = 1.5
#: Steps of the run that the staleness is taken as a share of. Nobody knows how long it will be, and most are longer;
#: but at the edge of the learning rates that a model bears, late gradients do harm for as long as it trains.
_RUN_STEPS = 200
#: A round's wait keeps training behind by so much more than a step's: this power of H (benchmark `local_updates`).
_ROUND_POWER = 0.75

#: Elements that some rank selects in a step, as a share of all (N times the ratio), and times dense's steps that Adam
#: needs then; interpolated in the logarithms of both. The last is of one selection for all ranks at 0.001.
_ADAM = ((4.0, 1.0), (0.4, 1.6), (0.04, 2.7), (0.004, 7.0), (0.001, 14.5))
#: The same of updates of H steps (benchmark `local_updates`): by H, the share of all elements that some rank selects
#: in a round, and times dense's steps.
_UPDATES = (
    (1, ((1.0, 1.32), (0.1, 1.5), (0.01, 1.9), (0.001, 3.3))),
    (4, ((1.0, 1.33), (0.1, 1.55), (0.01, 2.3), (0.001, 5.0))),
    (16, ((1.0, 1.5), (0.1, 1.9), (0.01, 3.2), (0.001, 8.0))),
)
#: The same of optimizers to which local steps leave the second moments of mean gradients; at 0.001 still of before.
_UPDATES_OF_MEAN_MOMENTS = (
    (1, ((1.0, 1.07), (0.1, 1.22), (0.01, 1.62), (0.001, 3.3))),
    (4, ((1.0, 1.1), (0.1, 1.27), (0.01, 1.9), (0.001, 5.0))),
    (16, ((1.0, 1.15), (0.1, 1.35), (0.01, 2.3), (0.001, 8.0))),
)
#: That each rank's optimizer sees its own batches alone costs the more, the more ranks there are: by this power.
_OWN_GRADIENTS = 0.25
#: More ranks are charged like so many: eight needed fewer steps, but that was seen of one small model alone.
_MOST_RANKS = 4
#: Times the steps that updates of Adam's kin need of which a part is selected, where the outer step has momentum: it
#: takes what comes late for a direction (the GPT at 0.03, benchmark `local_updates`).
_SELECTED_UNDER_MOMENTUM = 2.0
#: What is doubted of the steps that selected updates need, for each tenth of the values: their table stands amid what
#: was seen of a few small models (that of gradients stands at its careful edge), and is off the more, the less is sent.
_DOUBT = log(1.05)
#: Times the steps that updates need which come an iteration late, at the edge of what learning rate training bears.
_DELAYED = 1.25


def convergence_slowdown(plan: Plan, gain: float, facts: ModelFacts, *, tolerates_staleness: bool = True) -> float:
    """Return a plan's steps to the target over dense's; an unknown optimizer is charged like Adam.

    Args:
        plan: The plan that is charged.
        gain: The plan's gain; SGD's law alone reads it.
        facts: The number of ranks and the optimizer.
        tolerates_staleness: As `Profile.tolerates_staleness` returns it.
    """
    rounded = 1 + wires[plan.wire].error
    merged = plan.merged_iterations
    if not tolerates_staleness and plan.timetable is not None and plan.timetable.delays:
        merged = _DELAYED * plan.timetable.iterations_per_update
    if reads_gain(facts.optimizer):
        return merged * rounded * _sgd(plan, gain)
    if local_steps := plan.local_steps:
        ranks = min(plan.num_senders(facts.num_ranks), _MOST_RANKS)
        update_frequency = plan.row.arriving(plan.ratio, ranks) / ranks
        has_mean_moments = facts.optimizer.has_mean_moments
        has_momentum = plan.outer_step is not None and plan.outer_step[1] > 0
        late = _SELECTED_UNDER_MOMENTUM if has_momentum and not plan.is_dense else 1.0
        return late * merged * rounded * _updates(local_steps, update_frequency, facts.num_ranks, has_mean_moments)
    if plan.is_dense:
        return merged * rounded
    return merged * rounded * _adam(plan, plan.num_senders(facts.num_ranks))


def doubt(plan: Plan, facts: ModelFacts) -> float:
    """Return by how much (log) sooner than dense a plan must be at the target to count as alike.

    Of two plans as good as each other the one that sends more is the safer; and in long rounds, where training mostly
    computes, little is saved by sending less. SGD's law reads the gain of the job itself.
    """
    if plan.is_dense or not plan.local_steps or reads_gain(facts.optimizer):
        return 0.0
    return _DOUBT * log10(1 / plan.ratio)


@lru_cache(maxsize=20_000)
def _updates(local_steps: int, update_frequency: float, num_ranks: int, has_mean_moments: bool) -> float:
    """Interpolate the updates' table by H and by how often an element is updated, in the logarithms of both."""
    table = _UPDATES_OF_MEAN_MOMENTS if has_mean_moments else _UPDATES
    rows = [(num_local, _interpolated(row, update_frequency)) for num_local, row in table]
    ranks_share: float = (num_ranks / _MOST_RANKS) ** _OWN_GRADIENTS
    return _interpolated(rows[::-1], local_steps) * ranks_share


def _interpolated(points: Sequence[tuple[float, float]], at: float) -> float:
    """Interpolate in the logarithms of place and value, between points of falling place; both ends are extrapolated."""
    (above, high), (below, low) = next((ends for ends in pairwise(points) if at >= ends[1][0]), points[-2:])
    return high * exp(log(above / at) / log(above / below) * log(low / high))


def reads_gain(optimizer: OptimizerFamily) -> bool:
    """Return whether the gain tells anything of the steps that this optimizer needs."""
    return optimizer.kind == "sgd"


def _sgd(plan: Plan, gain: float) -> float:
    """Return the slowdown of a plan of this gain under SGD; dense's is 1, whatever it exchanges."""
    num_local = max(1, plan.local_steps)
    per_step = 0.0 if plan.is_dense else plan.row.staleness_steps * (1 / gain - 1) ** (_POWER / 2)
    until_round_ends = (num_local - 1) / 2  # on average
    relative: float = 1 + (per_step * num_local**_ROUND_POWER + until_round_ends) / _RUN_STEPS
    return relative


def _adam(plan: Plan, num_senders: int) -> float:
    update_frequency = plan.row.arriving(plan.ratio, min(num_senders, _MOST_RANKS))
    (most, fewest), (least, steps) = _ADAM[0], _ADAM[-1]
    if update_frequency >= most:
        return fewest
    if update_frequency < least:
        # Not measured. At worst each value sent does the same work: a tenth of them needs ten times as many steps.
        return steps * least / update_frequency
    (above, fewer), (below, more) = next(ends for ends in pairwise(_ADAM) if update_frequency >= ends[1][0])
    return fewer * exp(log(above / update_frequency) / log(above / below) * log(more / fewer))
