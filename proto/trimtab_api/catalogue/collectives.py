"""The collectives: how N gradients become one mean."""

from __future__ import annotations

from trimtab_api.catalogue import costs
from trimtab_api.catalogue.axis import Axis
from trimtab_api.catalogue.costs import Cost
from trimtab_api.catalogue.rows import Collective
from trimtab_api.catalogue.spec import Option, one_of


def _artopk(election: str, shape: str) -> Collective:
    """AR-Topk (Flexible Communication, section 3-A, Algorithm 1; costs 4a and 4b)."""
    cost = costs.artopk_ring if shape == "ring" else costs.artopk_tree
    who = "ranks take turns" if election == "star" else "the one whose selection weighs most"

    def with_vote(M: float, c: float, N: int) -> Cost:
        return costs.variance_vote(N) + cost(M, c, N)

    return Collective(
        f"artopk-{election}-{shape}",
        f"one rank's selection ({who}), all-reduced by {shape}",
        "trimtab.collectives.artopk:ArTopk",
        {"election": election, "shape": shape},
        family="artopk",
        cost=cost if election == "star" else with_vote,
        shares_indices=True,
        pattern="ring" if shape == "ring" else "tree",
        half_gain_ratio=0.08,
        stale_steps=2.5,
        is_representative=election == "star",
        by_default=True,
    )


def _dense(shape: str) -> Collective:
    """Dense all-reduce (Flexible Communication, Table I)."""
    cost = costs.ring_all_reduce if shape == "ring" else costs.tree_all_reduce
    return Collective(
        f"dense-{shape}",
        f"everything, all-reduced by {shape}",
        "trimtab.collectives.dense:DenseAllReduce",
        {"shape": shape},
        family="dense",
        cost=lambda M, c, N: cost(M, N),
        is_dense=True,
        pattern="ring" if shape == "ring" else "tree",
    )


_ALL_GATHER = Collective(
    "all-gather",
    "every rank's own selection to every rank (AG: Flexible Communication, section 3-D)",
    "trimtab.collectives.all_gather:AllGather",
    family="all-gather",
    cost=costs.sparse_all_gather,
    pattern="all-gather",
    is_representative=True,
    by_default=True,
)

_EXDYNA = Collective(
    "exdyna",
    "what each rank selects in a partition of its own, all-reduced by ring (ExDyna)",
    "trimtab.collectives.exdyna:ExDyna",
    options=(
        Option(
            "partition",
            one_of("dynamic", "coarse"),
            "balance the partitions by what is selected in them, or let them stay even",
            default="dynamic",
        ),
        Option(
            "threshold",
            one_of("bounded", "scaled", "paper"),
            "scaled: seeded from a sample, then scaled by (k'/k)^0.1; bounded: each rank sends k/N within 10%, too;"
            " paper: scaled by steps of 0.5%",
            default="bounded",
        ),
    ),
    family="exdyna",
    cost=lambda M, c, N, **_: costs.exdyna(M, c, N),
    why_not=lambda N, **_: None,
    shares_indices=True,
    pattern="ring",
    half_gain_ratio=0.1,
    stale_steps=2.5,
)

_ARC_TOPK = Collective(
    "arc-topk",
    "the blocks whose sketches weigh most in the mean, all-reduced by ring without indices (ARC-Top-K)",
    "trimtab.collectives.arc_topk:ArcTopk",
    family="arc-topk",
    cost=costs.arc_topk,
    shares_indices=True,
    more_passes=1.0,
    pattern="ring",
    half_gain_ratio=0.2,
    stale_steps=2.5,
)

collectives: Axis[Collective] = Axis(
    "collective",
    _dense("ring"),
    _dense("tree"),
    _ALL_GATHER,
    *(_artopk(election, shape) for election in ("star", "var") for shape in ("ring", "tree")),
    _EXDYNA,
    _ARC_TOPK,
)


def collective_cost(collective: str, M: float, c: float, N: int) -> Cost:
    """The cost of exchanging one buffer of ``M`` bytes; ``c`` is 1 for dense. A single rank exchanges nothing."""
    if N == 1:
        return Cost(0, 0)
    return collectives[collective].cost(M, c, N, **collectives.options(collective))


def why_not(collective: str, N: int) -> str | None:
    """Why a collective, with the options that its text gives, does not run on ``N`` ranks; None where it does."""
    return collectives[collective].why_not(N, **collectives.options(collective))


def cost_table(M: float, c: float, N: int) -> list[tuple[str, Cost | costs.CostRange]]:
    """Every scheme that has a closed form at these N ranks, by name: what a whole gradient in one buffer costs.

    Beside the collectives, those of the papers that they stand beside.
    """
    rows: list[tuple[str, Cost | costs.CostRange]] = [("parameter-server", costs.parameter_server(M, N))]
    shown = [spec for row in collectives.rows() for spec in (row.name, *(f"{row.name}:{w}" for w in row.shown_with))]
    rows += [(spec, collective_cost(spec, M, c, N)) for spec in shown if why_not(spec, N) is None]
    if N & (N - 1) == 0:
        rows += [
            ("topk-dsa", costs.topk_dsa(M, c, N)),
            ("gtopk", costs.gtopk(M, c, N)),
            ("ok-topk", costs.ok_topk(M, c, N)),
        ]
    rows.append(("spardl", costs.spardl(M, c, N)))
    if N % 2 == 0:
        rows += [("spardl-r-sag-2", costs.spardl_r_sag(M, c, N, 2)), ("spardl-b-sag-2", costs.spardl_b_sag(M, c, N, 2))]
    return rows
