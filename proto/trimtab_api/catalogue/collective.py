"""Collectives: how N gradients become one mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp

from trimtab_api.catalogue import costs
from trimtab_api.catalogue.costs import Cost
from trimtab_api.catalogue.row import Row

#: Float32 values in a cache line, and what fetching every line in no order costs, in passes over them all in order.
_VALUES_PER_LINE, _FETCH_ALL_PASSES = 16, 1.4


def any_number(N: int) -> str | None:
    """Works for every number of ranks."""
    return None


def power_of_two(N: int) -> str | None:
    """Works for 2, 4, 8, ... ranks."""
    return None if N & (N - 1) == 0 else f"works for 2, 4, 8, ... ranks, and {N} is no power of two"


def even(N: int) -> str | None:
    """Works for an even number of ranks."""
    return None if N % 2 == 0 else f"works for an even number of ranks, and {N} is odd"


def select_and_scatter(arriving: float) -> float:
    """Passes of one selection, and of putting this share of the elements where they belong.

    What arrives lies scattered: until every cache line is touched, each value fetches one of its own
    (docs/measurements/compression.md).
    """
    return 1 + _FETCH_ALL_PASSES * (1 - exp(-_VALUES_PER_LINE * arriving))


@dataclass(frozen=True, kw_only=True)
class CollectiveRow(Row):
    """A collective: what a plan may name, and what the cost model knows before anything is measured."""

    family: str
    """Its kin, by which a scheme never run is predicted: ``dense``, ``all-gather``, ``artopk``, or one of its own.

    ``dense``: the whole gradient is sent.
    """
    cost: Callable[[float, float, int], Cost]
    """Closed form of one buffer: M bytes of float32 gradient, ratio c (1 for dense), N > 1 ranks."""
    supports: Callable[[int], str | None] = any_number
    """None for a number of ranks that it works for, else why it does not."""
    k_is: str
    """What k = c n counts."""
    shares_indices: bool
    """Whether every rank sends the elements that one of them selected, and not each its own."""
    passes: Callable[[float, int], float]
    """Time of compressing and of unpacking what arrives, in passes over the whole gradient, of ratio and N."""
    half_gain_ratio: float = 0.05
    """Before anything is measured: the ratio at which half of the error-fed gradient gets through."""
    is_in_grid: bool = False
    """Whether the static plans that ``grid`` stands for hold it, and ``trimtab bench collectives`` measures it."""
    hue: str = "other"
    """Its colour in charts: a variable of the report's style sheet."""

    @property
    def is_dense(self) -> bool:
        """Whether the whole gradient is sent."""
        return self.family == "dense"

    def cost_at(self, M: float, c: float, N: int) -> Cost:
        """The cost of one buffer of ``M`` bytes; a single rank exchanges nothing."""
        return self.cost(M, c, N) if N > 1 else Cost(0, 0)


def _dense(name: str, meaning: str, factory: str, all_reduce: Callable[[float, int], Cost]) -> CollectiveRow:
    return CollectiveRow(
        name=name,
        meaning=meaning,
        factory=factory,
        family="dense",
        cost=lambda M, c, N: all_reduce(M, N),
        k_is="all elements",
        shares_indices=False,
        passes=lambda c, N: 0.0,
        hue="dense",
    )


def _artopk(election: str, shape: str, cost: Callable[[float, float, int], Cost]) -> CollectiveRow:
    leader = {
        "star": "a leader in turn selects",
        "var": "all select, and the rank whose selection has the largest norm leads",
    }
    return CollectiveRow(
        name=f"artopk-{election}-{shape}",
        meaning=f"AR-Topk: {leader[election]}; values at the leader's indices are all-reduced over a {shape}.",
        factory=f"trimtab.collectives.artopk:{election}_{shape}",
        family="artopk",
        cost=cost,
        k_is="elements that the leader selects, and every rank sends",
        shares_indices=True,
        passes=lambda c, N: select_and_scatter(c),
        half_gain_ratio=0.08,
        is_in_grid=election == "star",
        hue=shape,
    )


COLLECTIVES = (
    _dense(
        "dense-ring",
        "Ring all-reduce of the whole gradient: fewest bytes.",
        "trimtab.collectives.dense:dense_ring",
        costs.ring_all_reduce,
    ),
    _dense(
        "dense-tree",
        "Binomial tree all-reduce of the whole gradient: fewest messages.",
        "trimtab.collectives.dense:dense_tree",
        costs.tree_all_reduce,
    ),
    CollectiveRow(
        name="all-gather",
        meaning="Every rank's own selection goes to every rank, as values with their indices.",
        factory="trimtab.collectives.all_gather:AllGather",
        family="all-gather",
        cost=costs.sparse_all_gather,
        k_is="elements that each rank selects and sends",
        shares_indices=False,
        passes=lambda c, N: select_and_scatter(N * c),
        is_in_grid=True,
        hue="ag",
    ),
    _artopk("star", "ring", costs.artopk_ring),
    _artopk("star", "tree", costs.artopk_tree),
    _artopk("var", "ring", lambda M, c, N: costs.variance_vote(N) + costs.artopk_ring(M, c, N)),
    _artopk("var", "tree", lambda M, c, N: costs.variance_vote(N) + costs.artopk_tree(M, c, N)),
)
