"""The collectives: how N gradients become one mean."""

from __future__ import annotations

from trimtab_api.catalogue import costs
from trimtab_api.catalogue.axis import Axis
from trimtab_api.catalogue.costs import Cost
from trimtab_api.catalogue.other_axes import wires
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
        is_default=True,
        is_representative=election == "star",
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
        wires=("float32", "bfloat16"),
        pattern="ring" if shape == "ring" else "tree",
    )


_ALL_GATHER = Collective(
    "all-gather",
    "every rank's own selection to every rank (AG, and TopkA by Bruck's rounds: Flexible Communication, section 3-D)",
    "trimtab.collectives.all_gather:AllGather",
    family="all-gather",
    cost=costs.sparse_all_gather,
    pattern="all-gather",
    is_default=True,
    is_representative=True,
)

_OK_TOPK = Collective(
    "ok-topk",
    "the largest sums of all ranks' selections, summed in balanced regions (Ok-Topk: Li & Hoefler, PPoPP 2022)",
    "trimtab.collectives.ok_topk:OkTopk",
    family="ok-topk",
    cost=costs.ok_topk,
    cost_range=costs.ok_topk_range,
    cuts_union=True,
    half_gain_ratio=0.15,
    stale_steps=2.5,
)

_GTOPK = Collective(
    "gtopk",
    "the largest sums of all ranks' selections, cut to k wherever a tree joins (gTopk: Shi et al., ICDCS 2019)",
    "trimtab.collectives.gtopk:GTopk",
    family="gtopk",
    cost=costs.gtopk,
    cuts_union=True,
    pattern="tree",
    half_gain_ratio=0.085,
    stale_steps=2.5,
    options=(
        Option(
            "residual",
            one_of("kept", "paper"),
            "who keeps what a merge drops: the rank that drops it, or nobody, as published (then gradient is lost)",
            default="kept",
        ),
    ),
)

_TOPK_DSA = Collective(
    "topk-dsa",
    "every rank's own selection, summed by ranges, and gathered densely where these fill up (SparCML: SC 2019)",
    "trimtab.collectives.topk_dsa:TopkDsa",
    family="all-gather",
    cost=costs.topk_dsa,
    cost_range=costs.topk_dsa_range,
)

collectives: Axis[Collective] = Axis(
    "collective",
    _dense("ring"),
    _dense("tree"),
    _ALL_GATHER,
    *(_artopk(election, shape) for election in ("star", "var") for shape in ("ring", "tree")),
    _OK_TOPK,
    _GTOPK,
    _TOPK_DSA,
)


def collective_cost(collective: str, M: float, c: float, N: int, wire: str = wires.default) -> Cost:
    """The cost of exchanging one buffer of ``M`` bytes of float32; ``c`` is 1 for dense. One rank exchanges nothing."""
    share = wires[wire].bytes_per_value / costs.BYTES_PER_ELEMENT
    return Cost(0, 0) if N == 1 else collectives[collective].cost(M * share, c, N)


def cost_table(M: float, c: float, N: int) -> list[tuple[str, Cost | costs.CostRange]]:
    """Every scheme that has a closed form at these N ranks, by name: what a whole gradient in one buffer costs.

    Beside the collectives, each in every format in which it sends values, those of the papers that they stand beside.
    """
    rows: list[tuple[str, Cost | costs.CostRange]] = [("parameter-server", costs.parameter_server(M, N))]
    for row in collectives.rows():
        if row.why_not(N) is None:
            for wire in row.wires:
                name = row.name if wire == wires.default else f"{row.name}/wire={wire}"
                one = collective_cost(row.name, M, c, N, wire)
                rows.append((name, one if row.cost_range is None else row.cost_range(M, c, N)))
    rows.append(("spardl", costs.spardl(M, c, N)))
    if N % 2 == 0:
        rows += [("spardl-r-sag-2", costs.spardl_r_sag(M, c, N, 2)), ("spardl-b-sag-2", costs.spardl_b_sag(M, c, N, 2))]
    rows.append(("exdyna", costs.exdyna(M, c, N)))
    return rows
