"""The collectives: how N gradients become one mean."""

from __future__ import annotations

from collections.abc import Callable

from trimtab_api.catalogue import costs
from trimtab_api.catalogue.costs import Cost
from trimtab_api.catalogue.options import Option, one_of, whole_number
from trimtab_api.catalogue.registry import Registry
from trimtab_api.catalogue.rows import Collective, Pattern

#: Formats in which partial sums may be sent on: each rank that does so rounds again, which two bits would not bear.
_SUMMED_IN = ("float32", "bfloat16", "int8", "int4")


def _half_of(pairs: Cost) -> Cost:
    """Return the indices' part of the cost of pairs: as many bytes as float32 values."""
    return Cost(0, pairs.bytes / 2)


_ELECTED_BY = Option(
    "by",
    one_of("variance", "gradient", "selection"),
    "the largest of: variance of gradient plus residual, as the paper says; norm of the gradient, as its code has it;"
    " norm of what it would send, for which every rank selects",
    default="variance",
    auto=lambda N: ("variance", "gradient", "selection"),
)


def _artopk(election: str, shape: str) -> Collective:
    """Return a row of AR-Topk (Flexible Communication, section 3-A, Algorithm 1; costs 4a and 4b)."""
    cost = costs.artopk_ring if shape == "ring" else costs.artopk_tree
    is_elected = election == "var"
    who = "the one elected by `by`" if is_elected else "ranks take turns"

    def with_vote(M: float, c: float, N: int, by: str) -> Cost:
        return costs.variance_vote(N) + cost(M, c, N)

    return Collective(
        f"artopk-{election}-{shape}",
        f"one rank's selection ({who}), all-reduced by {shape}",
        "trimtab.collectives.ar_topk:ArTopk",
        {"shape": shape},
        options=(_ELECTED_BY,) if is_elected else (),
        family="artopk",
        cost=with_vote if is_elected else cost,
        rank_count_error=lambda N, **_: None,
        shares_indices=True,
        wires=_SUMMED_IN,
        overhead_cost=lambda M, c, N, **_: costs.broadcast(M * c, N),
        pattern="ring" if shape == "ring" else "tree",
        prior_half_gain_ratio=0.08,
        staleness_steps=2.5,
        is_default=True,
        is_representative=not is_elected,
    )


def _dense(shape: str, how: str, cost: Callable[[float, int], Cost], pattern: Pattern) -> Collective:
    """Return a row of dense all-reduce (Flexible Communication, Table I; halving: Rabenseifner, 2004)."""
    return Collective(
        f"dense-{shape}",
        f"everything, all-reduced by {how}",
        "trimtab.collectives.dense:DenseAllReduce",
        {"shape": shape},
        family="dense",
        cost=lambda M, c, N: cost(M, N),
        is_dense=True,
        # Halving cuts what it sends on otherwise than it came, so that blocks would be rounded twice.
        wires=("float32", "bfloat16") if shape == "halving" else _SUMMED_IN,
        pattern=pattern,
    )


_ALL_GATHER = Collective(
    "all-gather",
    "every rank's own selection to every rank (AG: Flexible Communication, section 3-D; TopkA)",
    "trimtab.collectives.all_gather:AllGather",
    options=(
        Option(
            "rounds",
            one_of("bruck", "doubling"),
            "bruck: the fewest for any number of ranks; doubling: TopkA as published, two more where that number"
            " is no power of two",
            default="bruck",
            auto=lambda N: ("bruck", "doubling"),
        ),
    ),
    family="all-gather",
    cost=lambda M, c, N, rounds: (costs.topk_a if rounds == "doubling" else costs.sparse_all_gather)(M, c, N),
    rank_count_error=lambda N, rounds: None,
    pattern="all-gather",
    wires=(*_SUMMED_IN, "int2"),
    overhead_cost=lambda M, c, N, rounds: costs.all_gather(M * c, N),
    is_default=True,
    is_representative=True,
)

_EXDYNA = Collective(
    "exdyna",
    "what each rank selects in a partition of its own, all-reduced by ring (ExDyna)",
    "trimtab.papers.exdyna.exdyna:ExDyna",
    options=(
        Option(
            "partition",
            one_of("dynamic", "coarse"),
            "balance the partitions by what is selected in them, or let them stay even",
            default="dynamic",
            auto=lambda N: ("dynamic", "coarse"),
        ),
        Option(
            "threshold",
            one_of("bounded", "scaled", "paper"),
            "scaled: seeded from a sample, then scaled by (k'/k)^0.1; bounded: each rank sends k/N within 10%, too;"
            " paper: scaled by steps of 0.5%",
            default="bounded",
            auto=lambda N: ("bounded", "scaled", "paper"),
        ),
    ),
    family="exdyna",
    cost=lambda M, c, N, **_: costs.exdyna(M, c, N),
    rank_count_error=lambda N, **_: None,
    shares_indices=True,
    selects_by_tensor=False,
    wires=_SUMMED_IN,
    overhead_cost=lambda M, c, N, **_: Cost(0, costs.exdyna(M, c, N).bytes - costs.ring_all_reduce(M * c, N).bytes),
    pattern="ring",
    prior_half_gain_ratio=0.1,
    staleness_steps=2.5,
)

_ARC_TOPK = Collective(
    "arc-topk",
    "the blocks whose sketches weigh most in the mean, all-reduced by ring without indices (ARC-Top-K)",
    "trimtab.papers.arc_topk.arc_topk:ArcTopk",
    family="arc-topk",
    cost=costs.arc_topk,
    shares_indices=True,
    selects_by_tensor=False,
    wires=_SUMMED_IN,
    overhead_cost=costs.arc_sketch,
    extra_passes=1.0,
    has_builtin_sparsifier=True,
    pattern="ring",
    prior_half_gain_ratio=0.2,
    staleness_steps=2.5,
)


def _spardl_cost(M: float, c: float, N: int, teams: int, residual: str) -> Cost:
    if teams & (teams - 1) == 0:
        return costs.spardl_r_sag(M, c, N, teams)
    return costs.spardl_b_sag(M, c, N, teams).least


def _spardl_range(M: float, c: float, N: int, teams: int, residual: str) -> costs.CostRange:
    if teams & (teams - 1) == 0:
        return costs.CostRange(*2 * (costs.spardl_r_sag(M, c, N, teams),))
    return costs.spardl_b_sag(M, c, N, teams)


def _spardl_rank_count_error(N: int, teams: int, residual: str) -> str | None:
    if N % teams == 0:
        return None
    fitting = ", ".join(str(d) for d in range(1, N + 1) if N % d == 0)
    return f"teams are of equal size, and {teams} of them are not; use one of {fitting}"


_SPARDL = Collective(
    "spardl",
    "blocks summed sparsely on the way, and selected in again before they are sent on (SparDL)",
    "trimtab.papers.spardl.spardl:SparDL",
    options=(
        Option(
            "teams",
            whole_number(1),
            "d, which divides the ranks: more save messages, and send more",
            default=1,
            auto=lambda N: tuple(d for d in range(1, N + 1) if N % d == 0),
        ),
        Option(
            "residual",
            one_of("global", "local", "partial"),
            "what is kept of dropped values: all (global), or by the published ablations, which lose gradient",
            default="global",
            static_only=("local", "partial"),
        ),
    ),
    family="spardl",
    cost=_spardl_cost,
    cost_range=_spardl_range,
    rank_count_error=_spardl_rank_count_error,
    reselects=True,
    wires=_SUMMED_IN,
    overhead_cost=lambda M, c, N, **options: _half_of(_spardl_cost(M, c, N, **options)),
    extra_passes=1 / 3,  # the accumulated gradient is read again: 4 bytes an element of a pass's 12
    prior_half_gain_ratio=0.13,  # 2.6 times all-gather's (table `schemes` of benchmarks/results)
    table_variants=("teams=2", "teams=3"),
)

_OK_TOPK = Collective(
    "ok-topk",
    "the largest sums of all ranks' selections, summed in balanced regions (Ok-Topk: Li & Hoefler, PPoPP 2022)",
    "trimtab.papers.ok_topk.ok_topk:OkTopk",
    family="ok-topk",
    cost=costs.ok_topk,
    cost_range=costs.ok_topk_range,
    wires=_SUMMED_IN,
    overhead_cost=lambda M, c, N: _half_of(costs.ok_topk(M, c, N)),
    reselects=True,
    prior_half_gain_ratio=0.15,
    staleness_steps=2.5,
)

_GTOPK = Collective(
    "gtopk",
    "the largest sums of all ranks' selections, cut to k wherever a tree joins (gTopk: Shi et al., ICDCS 2019)",
    "trimtab.papers.gtopk.gtopk:GTopk",
    family="gtopk",
    cost=lambda M, c, N, residual: costs.gtopk(M, c, N),
    rank_count_error=lambda N, residual: None,
    wires=_SUMMED_IN,
    overhead_cost=lambda M, c, N, residual: _half_of(costs.gtopk(M, c, N)),
    reselects=True,
    pattern="tree",
    prior_half_gain_ratio=0.085,
    staleness_steps=2.5,
    options=(
        Option(
            "residual",
            one_of("kept", "paper"),
            "who keeps what a merge drops: the rank that drops it, or nobody, as published (then gradient is lost)",
            default="kept",
            static_only=("paper",),
        ),
    ),
)

_TOPK_DSA = Collective(
    "topk-dsa",
    "every rank's own selection, summed by ranges, and gathered densely where these fill up (SparCML: SC 2019)",
    "trimtab.papers.topk_dsa.topk_dsa:TopkDsa",
    family="all-gather",
    cost=costs.topk_dsa,
    cost_range=costs.topk_dsa_range,
    wires=_SUMMED_IN,
    overhead_cost=lambda M, c, N: _half_of(costs.topk_dsa(M, c, N)),
)

#: May be written with every collective: `trimtab_api.catalogue.exchange_costs`.
PER_HOST = Option(
    "per_host",
    whole_number(1, 1024),
    "ranks of each host, which sum everything among themselves and then exchange between hosts alone; 1: no such sum",
    default=1,
)

collectives: Registry[Collective] = Registry(
    "collective",
    _dense("ring", "ring", costs.ring_all_reduce, "ring"),
    _dense("tree", "tree", costs.tree_all_reduce, "tree"),
    _ALL_GATHER,
    *(_artopk(election, shape) for election in ("star", "var") for shape in ("ring", "tree")),
    _SPARDL,
    _OK_TOPK,
    _GTOPK,
    _TOPK_DSA,
    _EXDYNA,
    _ARC_TOPK,
    _dense("halving", "recursive halving and doubling", costs.halving_all_reduce, "other"),
    common=(PER_HOST,),
)
