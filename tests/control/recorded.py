"""Clusters whose truth is what was recorded of real training by Adam, and not the controller's own law.

`RECORDED` is what the benchmark `adam` printed: the step at which each plan's held-out loss first fell to each level.
How much a step under a plan is worth, in dense's steps, is read off these curves, stage by stage of the training.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import exp, log

from simulator import random_cluster
from trimtab.control.types import OptimizerFamily
from trimtab.evaluation.judge.simulated_cluster import Phase, SimulatedCluster
from trimtab.plan.plan import Plan

#: Steps in which the loss falls steadily before it goes by a power of them.
_AT_FIRST = 10.0

Key = tuple[float, bool]
"""Ratio, and whether one rank selected for all."""


@dataclass(frozen=True)
class Recording:
    """One model: dense's steps to each held-out loss, and each plan's."""

    dense: Sequence[float]
    plans: dict[Key, Sequence[float]]
    updates: dict[int, dict[float, float]] = field(default_factory=dict)
    """Times dense's steps that updates took where Adam keeps the second moments of mean gradients, by H and ratio
    (the benchmark `local_updates`, to the last of its losses)."""
    losses: Sequence[tuple[float, float]] = ()
    """Dense's steps and the held-out losses that it had then, from the first step on."""
    loss_noise: float = 0.03
    """By how much a batch's loss is off (log, one deviation)."""

    def loss(self, progress: float) -> float:
        """Of dense after so many steps, between those recorded by a power of the steps; after the last, so too."""
        taken = progress + _AT_FIRST
        points = [(step + _AT_FIRST, loss) for step, loss in self.losses]
        (step, loss), (until, then) = next((ends for ends in pairwise(points) if taken <= ends[1][0]), points[-2:])
        return loss * exp(log(taken / step) / log(until / step) * log(then / loss))

    def pace(self, key: Key, progress: float) -> float:
        """Dense's steps that a step was worth under a plan, between the two losses that a progress lies between."""
        own, dense = (0.0, *self.plans[key]), (0.0, *self.dense)
        stage = min(bisect_right(dense, progress), len(own) - 1)
        return (dense[stage] - dense[stage - 1]) / (own[stage] - own[stage - 1])

    def interpolated(self, plan: Plan, progress: float) -> float:
        """The same at any ratio, interpolated in the logarithms of both."""
        if plan.local_steps:
            return 1 / self._of_updates(plan)
        if plan.is_dense:
            return 1.0
        shared = plan.shares_indices
        known = {1.0: 1.0} | {ratio: self.pace((ratio, at), progress) for ratio, at in self.plans if at is shared}
        ratios = sorted(known)
        low, high = next((a, b) for a, b in pairwise(ratios) if plan.ratio <= b)
        share = log(plan.ratio / low) / log(high / low)
        return exp(log(known[low]) + share * log(known[high] / known[low]))

    def _of_updates(self, plan: Plan) -> float:
        """In the logarithms of H and ratio; indices that ranks share are heard of a quarter as often."""
        ratio = plan.ratio / (4 if plan.shares_indices else 1)

        def at(known: dict[float, float], where: float) -> float:
            low, high = next(((a, b) for a, b in pairwise(sorted(known)) if where <= b), tuple(sorted(known)[-2:]))
            return exp(log(known[low]) + log(where / low) / log(high / low) * log(known[high] / known[low]))

        return at({num_local: at(row, ratio) for num_local, row in self.updates.items()}, plan.local_steps)


#: The GPT of width 96 and two layers (0.3 million parameters), 1e-3, 4 ranks: to 2.7, 2.5, 2.4 and 2.28. (At 0.001 it
#: was not run so long: dense's steps times what the digits needed there.)
GPT = Recording(
    dense=(55, 125, 245, 475),
    losses=((0, 4.2), (55, 2.7), (125, 2.5), (245, 2.4), (475, 2.28)),
    plans={
        (0.1, False): (75, 170, 280, 515),
        (0.01, False): (135, 295, 550, 1000),
        (0.001, False): (370, 854, 1597, 2940),
        (0.1, True): (90, 225, 405, 805),
        (0.01, True): (195, 460, 805, 1450),
        (0.001, True): (760, 1725, 3380, 6560),
    },
    updates={
        1: {1: 0.99, 0.1: 1.14, 0.01: 1.29, 0.001: 1.99},
        4: {1: 1.01, 0.1: 1.07, 0.01: 1.52},
        16: {1: 1.06, 0.1: 1.19, 0.01: 2.3},
    },
)
#: The digits' perceptron of 0.1 million parameters, Adam, 3e-4, 4 ranks: to 1, 0.5, 0.3 and 0.2.
DIGITS = Recording(
    dense=(90, 128, 173, 225),
    losses=((0, 2.3), (90, 1.0), (128, 0.5), (173, 0.3), (225, 0.2)),
    loss_noise=0.25,
    plans={
        (0.1, False): (110, 153, 203, 258),
        (0.03, False): (145, 208, 270, 348),
        (0.01, False): (213, 305, 393, 498),
        (0.001, False): (605, 875, 1128, 1393),
        (0.1, True): (155, 223, 290, 378),
        (0.01, True): (395, 578, 755, 963),
        (0.001, True): (1335, 1930, 2480, 3090),
    },
    updates={  # at 1e-3, of the perceptron of 0.3 million parameters
        1: {1: 1.0, 0.1: 1.23, 0.01: 1.62, 0.001: 2.77},
        4: {1: 1.08, 0.1: 1.23, 0.01: 1.92, 0.001: 3.85},
        16: {1: 1.0, 0.1: 1.2, 0.01: 2.2, 0.001: 4.2},
    },
)
#: The same at 1e-3, by 8 ranks of half the batch.
DIGITS_OF_8 = Recording(
    dense=(35, 45, 60, 78),
    losses=((0, 2.3), (35, 1.0), (45, 0.5), (60, 0.3), (78, 0.2)),
    loss_noise=0.35,
    plans={
        (0.1, False): (40, 50, 67, 83),
        (0.01, False): (68, 90, 110, 136),
        (0.001, False): (160, 217, 265, 327),
        (0.1, True): (60, 80, 100, 123),
        (0.01, True): (138, 190, 242, 302),
        (0.001, True): (420, 603, 758, 940),
    },
)
#: A larger GPT, 4 ranks, on another day: dense had at steps 230, 125 and 50 the losses that 0.1, 0.01 and 0.001 had at
#: 320; and steps to one loss. (One selection for all was not run: as many times the own ones' as the small GPT's.)
LARGE = Recording(
    dense=(230,),
    losses=((0, 4.2), (50, 2.8), (125, 2.08), (230, 1.83), (320, 1.69)),
    plans={
        (0.1, False): (320,),
        (0.01, False): (589,),
        (0.001, False): (1472,),
        (0.1, True): (500,),
        (0.01, True): (860,),
        (0.001, True): (3280,),
    },
)
LARGE_TO_ONE_LOSS = Recording(
    dense=(160,),
    losses=((0, 4.2), (40, 2.7), (85, 2.5), (160, 2.28)),
    plans={
        (0.1, False): (256,),
        (0.01, False): (440,),
        (0.001, False): (1040,),
        (0.1, True): (400,),
        (0.01, True): (640,),
        (0.001, True): (2320,),
    },
)
RECORDED = {
    4: (GPT, LARGE, LARGE_TO_ONE_LOSS, DIGITS),
    8: (GPT, LARGE, LARGE_TO_ONE_LOSS, DIGITS, DIGITS_OF_8),
}


def random_adam_cluster(seed: int, num_ranks: int, recordings: Sequence[Recording] = ()) -> SimulatedCluster:
    """A machine and a network as in `random_cluster`, up to ten times as fast, and a recorded training, off by a tenth.

    On the faster of these networks dense is the best plan. ``recordings``: those to draw from, else all.
    """
    cluster, rng = random_cluster(seed, num_ranks), random.Random(f"adam {seed}")
    speed = exp(rng.uniform(0, log(10)))
    recording = rng.choice(recordings or RECORDED[num_ranks])
    factors = {shared: exp(rng.gauss(0, 0.1)) for shared in (False, True)}

    def pace(plan: Plan, progress: float) -> float:
        own = recording.interpolated(plan, progress)
        return own if own == 1 else own ** factors[plan.shares_indices]

    return replace(
        cluster,
        phases=tuple(Phase(each.start, each.latency, speed * each.bandwidth) for each in cluster.phases),
        dense_steps_to_target=recording.dense[-1],
        pace=pace,
        loss=recording.loss,
        loss_noise=recording.loss_noise,
        optimizer=OptimizerFamily("AdamW", "adam"),
    )
