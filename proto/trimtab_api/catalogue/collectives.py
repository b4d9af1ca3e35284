"""The collectives: how N gradients become one mean."""

from __future__ import annotations

from trimtab_api.catalogue import costs
from trimtab_api.catalogue.axis import Axis
from trimtab_api.catalogue.costs import Cost
from trimtab_api.catalogue.other_axes import wires
from trimtab_api.catalogue.rows import Collective
from trimtab_api.catalogue.spec import Option, one_of, whole_number

#: What sums may be sent on in: each rank that does rounds again, which two bits would not bear.
_SUMMED_IN = ("float32", "bfloat16", "int8", "int4")


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
        wires=_SUMMED_IN,
        beside_values=lambda M, c, N: costs.broadcast(M * c, N),
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
        wires=_SUMMED_IN,
        pattern="ring" if shape == "ring" else "tree",
    )


_ALL_GATHER = Collective(
    "all-gather",
    "every rank's own selection to every rank (AG, and TopkA by Bruck's rounds: Flexible Communication, section 3-D)",
    "trimtab.collectives.all_gather:AllGather",
    family="all-gather",
    cost=costs.sparse_all_gather,
    pattern="all-gather",
    wires=(*_SUMMED_IN, "int2"),
    beside_values=lambda M, c, N: costs.all_gather(M * c, N),
    is_default=True,
    is_representative=True,
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
    wires=_SUMMED_IN,
    beside_values=costs.arc_sketch,
    more_passes=1.0,
    pattern="ring",
    half_gain_ratio=0.2,
    stale_steps=2.5,
)


def _spardl_cost(M: float, c: float, N: int, teams: int, residual: str) -> Cost:
    if teams & (teams - 1) == 0:
        return costs.spardl_r_sag(M, c, N, teams)
    return costs.spardl_b_sag(M, c, N, teams).least


def _spardl_range(M: float, c: float, N: int, teams: int, residual: str) -> costs.CostRange:
    if teams & (teams - 1) == 0:
        return costs.CostRange(*2 * (costs.spardl_r_sag(M, c, N, teams),))
    return costs.spardl_b_sag(M, c, N, teams)


def _spardl_why_not(N: int, teams: int, residual: str) -> str | None:
    if N % teams == 0:
        return None
    fitting = ", ".join(str(d) for d in range(1, N + 1) if N % d == 0)
    return f"teams are of equal size, and {teams} of them are not; use one of {fitting}"


_SPARDL = Collective(
    "spardl",
    "blocks summed sparsely on the way, and selected in again before they are sent on (SparDL)",
    "trimtab.collectives.spardl:SparDL",
    options=(
        Option("teams", whole_number(1), "d, which divides the ranks: more save messages, and send more", default=1),
        Option(
            "residual",
            one_of("global", "local", "partial"),
            "what is kept of dropped values: all (global), or by the published ablations, which lose gradient",
            default="global",
        ),
    ),
    family="spardl",
    cost=_spardl_cost,
    cost_range=_spardl_range,
    why_not=_spardl_why_not,
    cuts_union=True,
    more_passes=1 / 3,  # the accumulated gradient is read again: 4 bytes an element of a pass's 12
    half_gain_ratio=0.13,  # 2.6 times all-gather's (docs/measurements/schemes.md)
    shown_with=("teams=2", "teams=3"),
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
    cost=lambda M, c, N, residual: costs.gtopk(M, c, N),
    why_not=lambda N, residual: None,
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
    _SPARDL,
    _OK_TOPK,
    _GTOPK,
    _TOPK_DSA,
    _EXDYNA,
    _ARC_TOPK,
)


def collective_cost(collective: str, M: float, c: float, N: int, wire: str = wires.default) -> Cost:
    """The cost of exchanging one buffer of ``M`` bytes of float32; ``c`` is 1 for dense. One rank exchanges nothing."""
    if N == 1:
        return Cost(0, 0)
    row = collectives[collective]
    exact: Cost = row.cost(M, c, N, **collectives.options(collective))
    if wire == wires.default:
        return exact
    others = row.beside_values(M, c, N).bytes
    share = wires[wire].bytes_per_value / costs.BYTES_PER_ELEMENT
    return Cost(exact.messages, others + (exact.bytes - others) * share)


def why_not(collective: str, N: int) -> str | None:
    """Why a collective, with the options that its text gives, does not run on ``N`` ranks; None where it does."""
    return collectives[collective].why_not(N, **collectives.options(collective))


def cost_table(M: float, c: float, N: int) -> list[tuple[str, Cost | costs.CostRange]]:
    """Every scheme that has a closed form at these N ranks, by name: what a whole gradient in one buffer costs.

    Beside the collectives, each in every format in which it sends values, those of the papers that they stand beside.
    """
    rows: list[tuple[str, Cost | costs.CostRange]] = [("parameter-server", costs.parameter_server(M, N))]
    for row in collectives.rows():
        for spec in (row.name, *(f"{row.name}:{options}" for options in row.shown_with)):
            if why_not(spec, N) is None:
                ends = cost_range(spec, M, c, N)
                rows.append((spec, ends.least if ends.least == ends.most else ends))
        for wire in row.wires[1:]:
            rows.append((f"{row.name}/wire={wire}", collective_cost(row.name, M, c, N, wire)))
    return rows


def cost_range(collective: str, M: float, c: float, N: int) -> costs.CostRange:
    """The ends between which `collective_cost` lies, by what the ranks select; the same where that does not matter."""
    given = collectives[collective].cost_range
    if N == 1 or given is None:
        one = collective_cost(collective, M, c, N)
        return costs.CostRange(one, one)
    return given(M, c, N, **collectives.options(collective))
