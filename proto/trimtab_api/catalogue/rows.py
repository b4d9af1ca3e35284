"""A row of the catalogue: the properties of a scheme that can be known without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp
from typing import Any, Literal

from trimtab_api.catalogue.costs import Cost, CostRange
from trimtab_api.catalogue.options import Option
from trimtab_api.renamed_arguments import renamed_fields

#: Float32 values in a cache line, and what fetching every line in no order costs, in passes over them all in order.
_VALUES_PER_LINE, _FETCH_ALL_PASSES = 16, 1.4

Pattern = Literal["all-gather", "ring", "tree", "other"]


@dataclass(frozen=True)
class Row:
    """A scheme of any axis of a plan."""

    name: str
    meaning: str
    """In one line, for tables and messages."""
    implementation: str = ""
    """``module:attribute`` of what makes it, which only who runs the scheme imports; empty where there is none."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``implementation`` beside the options."""
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Collective(Row):
    """A scheme by which N gradients become one mean."""

    family: str = "other"
    """A family of schemes, in which observations of one scheme say something of the others."""
    cost: Callable[..., Cost] = lambda M, c, N: Cost(0, 0)
    """Closed form of one buffer: M bytes of float32 gradient, compression ratio c (1 for dense), N >= 2 ranks.

    Called with the values of its options, too, by their names.
    """
    cost_range: Callable[..., CostRange] | None = None
    """The bounds of `cost`, if bytes depend on what the ranks select; `cost` is then that of selections that are alike
    by chance alone. Called likewise."""
    rank_count_error: Callable[..., str | None] = lambda N, **_: None
    """Returns why it does not run on N ranks, in a sentence; None if it does. Called with its options, too."""
    is_dense: bool = False
    """True if it sends the whole gradient."""
    shares_indices: bool = False
    """True if k is chosen once for all ranks, which send the same indices; else every rank sends k of its own."""
    reselects: bool = False
    """True if about k of the selected elements come back, and not the union of the ranks' selections."""
    selects_by_tensor: bool = True
    """True if, where k is chosen per tensor, elements of each tensor are sent (selection=ahead)."""
    extra_passes: float = 0.0
    """Passes over the gradient that compressing costs beside those that select."""
    has_builtin_sparsifier: bool = False
    """True if it uses no sparsifier; its cost of selecting beyond one pass is in `extra_passes`."""
    pattern: Pattern = "other"
    """How values travel: what colours it in reports."""
    prior_half_gain_ratio: float = 0.05
    """Before anything is measured: the ratio at which half of the error-fed gradient gets through, gain = c / (c + it).

    More where all ranks send what one of them selected.
    """
    staleness_steps: float = 1.5
    """Steps by which training with SGD lags where the residual is as large as what was sent."""
    wires: tuple[str, ...] = ("float32",)
    """Formats in which it can send values."""
    overhead_cost: Callable[..., Cost] = lambda M, c, N, **_: Cost(0, 0)
    """The part of its closed form that is not values, and takes as many bytes in every format: mostly indices. Called
    likewise."""
    is_default: bool = False
    """True if it may be chosen for a job that does not say which collectives may."""
    is_representative: bool = False
    """True if it stands for its family where all of them would be too many."""
    table_variants: tuple[str, ...] = ()
    """Options, such as ``teams=2``, with which tables of costs show it beside the defaults."""

    def passes(self, ratio: float, num_ranks: int, selecting: float = 1.0) -> float:
        """Return the cost of compressing, in passes over the gradient in order: selecting, and placing what arrives.

        What arrives lies scattered: until every cache line is touched, each value fetches one of its own
        (table `compression` of benchmarks/results). Of a dense gradient nothing is selected.

        Args:
            ratio: Compression ratio.
            num_ranks: Ranks.
            selecting: Passes that the sparsifier takes.
        """
        if self.is_dense:
            return 0.0
        fetched = 1 - exp(-_VALUES_PER_LINE * self.arriving(ratio, num_ranks))
        return (1.0 if self.has_builtin_sparsifier else selecting) + self.extra_passes + _FETCH_ALL_PASSES * fetched

    def arriving(self, ratio: float, num_ranks: int) -> float:
        """Return the values that arrive on a rank, as a share of its elements: they cost the passes over memory."""
        return ratio if self.shares_indices or self.reselects else num_ranks * ratio


renamed_fields(
    Collective,
    {
        "why_not": "rank_count_error",
        "cuts_union": "reselects",
        "more_passes": "extra_passes",
        "selects_itself": "has_builtin_sparsifier",
        "half_gain_ratio": "prior_half_gain_ratio",
        "stale_steps": "staleness_steps",
        "beside_values": "overhead_cost",
        "shown_with": "table_variants",
    },
)


@dataclass(frozen=True)
class Sparsifier(Row):
    """A scheme that selects the elements to send."""

    passes: float = 1.0
    """The cost of selecting before it is measured, in passes over the gradient in order."""
    gain_odds: float = 1.0
    """The gain of its selection before it is measured: the odds of its gain, as a share of those of the largest k."""


@dataclass(frozen=True)
class Schedule(Row):
    """A scheme that determines when buckets are sent."""

    delays_updates: bool = False
    """True if the optimizer gets a gradient in a later step than its own: then a user must allow it."""
    awaits_backward: bool = False
    """True if nothing is sent before backward has ended, when the whole gradient is known."""
    overlaps_rounds: bool = False
    """True if the updates of a round of local steps cross while the next round computes."""
    is_planned: bool = False
    """True if ``implementation`` is a planner, asked once steps were profiled; until then it is as wait-free."""


@dataclass(frozen=True)
class Wire(Row):
    """A format in which values cross."""

    bytes_per_value: float = 4.0
    """Bytes of a value, with its part of what a block of values needs to be read."""
    error: float = 0.0
    """Norm of what rounding takes, as a share of that of normal values."""
    passes: float = 0.0
    """The cost of rounding and reading values, in passes over as many of them."""
    is_default: bool = False
    """True if it may be chosen for selected values in a job that does not say which formats may."""
    rounds_dense: bool = False
    """True if it may be chosen for whole gradients: rounding all of them takes few passes."""
