"""A row of the catalogue: the properties of a scheme that can be known without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp
from typing import Any, Literal

from trimtab_api.catalogue.costs import Cost, CostRange
from trimtab_api.catalogue.options import Option

#: Float32 values in a cache line, and what fetching every line in no order costs, in passes over them all in order.
_VALUES_PER_LINE, _FETCH_ALL_PASSES = 16, 1.4

Pattern = Literal["all-gather", "ring", "tree", "other"]


@dataclass(frozen=True)
class Row:
    """One scheme of any axis of a plan."""

    name: str
    meaning: str
    """In one line, for tables and messages."""
    implementation: str = ""
    """``module:attribute`` of what makes it, which only who runs the scheme imports; empty where there is none."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What that is called with, beside the options."""
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Collective(Row):
    """How N gradients become one mean."""

    family: str = "other"
    """What is learned of one scheme tells something of its family."""
    cost: Callable[..., Cost] = lambda M, c, N: Cost(0, 0)
    """Closed form of one buffer: M bytes of float32 gradient, compression ratio c (1 for dense), N >= 2 ranks.

    Called with the values of its options, too, by their names.
    """
    cost_range: Callable[..., CostRange] | None = None
    """Its ends, where bytes depend on what the ranks select: `cost` is then what selections that are alike by chance
    alone take. Called likewise.
    """
    rank_count_error: Callable[..., str | None] = lambda N, **_: None
    """Why it does not run on N ranks, in a sentence; None where it does. Called with its options, too."""
    is_dense: bool = False
    """Whether it sends the whole gradient."""
    shares_indices: bool = False
    """Whether k is chosen once for all ranks, which send the same indices; else every rank sends k of its own."""
    reselects: bool = False
    """Whether of what the ranks select about k elements come back, and not the union of their selections."""
    extra_passes: float = 0.0
    """Passes over the gradient that compressing costs beside those that select."""
    has_builtin_sparsifier: bool = False
    """Whether it asks no sparsifier; what selecting takes beyond one pass is in `extra_passes`."""
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
    """What of its closed form is not values, and takes as many bytes in every format: indices, for the most part.

    Called likewise.
    """
    is_default: bool = False
    """Whether it may be chosen where a job does not say which collectives may."""
    is_representative: bool = False
    """Whether it stands for its kin where all of them would be too many."""
    table_variants: tuple[str, ...] = ()
    """Options, such as ``teams=2``, with which tables of costs show it beside the defaults."""

    def passes(self, ratio: float, num_ranks: int, selecting: float = 1.0) -> float:
        """Return the cost of compressing, in passes over the gradient in order: selecting, and placing what arrives.

        What arrives lies scattered: until every cache line is touched, each value fetches one of its own
        (docs/measurements/compression.md). Of a dense gradient nothing is selected.

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


@dataclass(frozen=True)
class Sparsifier(Row):
    """Which elements are sent."""

    passes: float = 1.0
    """What selecting costs before it is measured, in passes over the gradient in order."""
    gain_odds: float = 1.0
    """What its selection carries before it is measured: the odds of its gain, as a share of those of the largest k."""


@dataclass(frozen=True)
class Schedule(Row):
    """When buckets are sent."""

    delays_updates: bool = False
    """Whether the optimizer gets a gradient in a later step than its own: then a user must allow it."""
    awaits_backward: bool = False
    """Whether nothing is sent before backward has ended, when the whole gradient is known."""
    overlaps_rounds: bool = False
    """Whether the updates of a round of local steps cross while the next round computes."""
    is_planned: bool = False
    """Whether ``implementation`` is a planner, asked once steps were profiled; until then it is as wait-free."""


@dataclass(frozen=True)
class Wire(Row):
    """A format in which values cross."""

    bytes_per_value: float = 4.0
    """What blocks of values need to be read counts in."""
    error: float = 0.0
    """Norm of what rounding takes, as a share of that of normal values."""
    passes: float = 0.0
    """What rounding and reading values costs, in passes over as many of them."""
    is_default: bool = False
    """Whether it may be chosen for selected values where a job does not say which formats may."""
    rounds_dense: bool = False
    """Whether it may be chosen for whole gradients: rounding all of them takes few passes."""
