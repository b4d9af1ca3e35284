"""The cost of a collective before anything is measured: messages times alpha plus bytes times beta.

One function per scheme, in the notation of the papers:

====== =====================================================================
M      bytes of the whole float32 gradient
c      compression ratio in (0, 1]; Mc bytes of values are sent
N      ranks
L      log2 N; where N is no power of two, the rounds really needed, ceil(log2 N)
alpha  one-way seconds per message
beta   seconds per byte, the inverse of the bandwidth
====== =====================================================================

The dense rows and AR-Topk are those of Flexible Communication (Table I, equations 4a to 5c), TopkDSA, gTopk and
Ok-Topk those of SparDL's Table I, SparDL's own its equations, ExDyna's and ARC-Top-K's from their phases. A real
implementation adds overhead of its own, which the controller learns; the closed form gives the shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

BYTES_PER_ELEMENT = 4
#: Of ARC-Top-K: the bytes of a sketch, as a share of those of the values that it chooses; and the fewest blocks chosen,
#: for which a small buffer has a larger sketch.
ARC_SKETCH_SHARE, ARC_FEWEST_BLOCKS = 1, 8
#: Between ranks of one host, over loopback: seconds a message, and bytes a second of each rank while all of them send
#: and add (table `collectives` of benchmarks/results). Nobody monitors these links; what a job's really take is
#: learned.
LOCAL_LATENCY, LOCAL_BANDWIDTH = 1.5e-4, 1e9


@dataclass(frozen=True)
class Cost:
    """The longest chain of one exchange."""

    messages: float
    """Messages that follow one another."""
    bytes: float
    """Bytes that cross the slowest link one after another."""
    local_seconds: float = 0.0
    """Seconds of exchanges inside hosts, which no network slows down."""

    def seconds(self, alpha: float, beta: float) -> float:
        """Return the time on a network of ``alpha`` seconds a message and ``beta`` seconds a byte."""
        return self.messages * alpha + self.bytes * beta + self.local_seconds

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of one exchange after another."""
        return Cost(self.messages + other.messages, self.bytes + other.bytes, self.local_seconds + other.local_seconds)


@dataclass(frozen=True)
class CostRange:
    """The bounds of a scheme's cost, if its bytes depend on the selections: all ranks choose alike, or differently."""

    least: Cost
    most: Cost


def rounds(N: int) -> int:
    """Return L, the rounds of a binomial tree or of Bruck's all-gather over N ranks."""
    return ceil(log2(N))


# Dense: M bytes each ----------------------------------------------------------------------------------


def parameter_server(M: float, N: int) -> Cost:
    """Return the cost of a parameter server: all ranks send to one server, which answers all."""
    return Cost(2, 2 * (N - 1) * M)


def ring_all_reduce(M: float, N: int) -> Cost:
    """Return the cost of reduce-scatter and all-gather around a ring: the fewest bytes, the most messages."""
    return Cost(2 * (N - 1), 2 * (N - 1) / N * M)


def tree_all_reduce(M: float, N: int) -> Cost:
    """Return the cost of a reduction up and a broadcast down a binomial tree."""
    return Cost(2 * rounds(N), 2 * rounds(N) * M)


def halving_all_reduce(M: float, N: int) -> Cost:
    """Return the cost of recursive halving, then doubling.

    If N is no power of two, there are two more messages of all bytes.
    """
    core, more = _core_of(N)
    return Cost(2 * rounds(core) + more, (2 * (core - 1) / core + more) * M)


def broadcast(M: float, N: int) -> Cost:
    """Return the cost of a broadcast down a binomial tree."""
    return Cost(rounds(N), rounds(N) * M)


def all_gather(M: float, N: int) -> Cost:
    """Return the cost of M bytes from every rank to every rank, in Bruck's doubling rounds."""
    return Cost(rounds(N), (N - 1) * M)


# Sparse: c of M bytes ---------------------------------------------------------------------------------


def sparse_all_gather(M: float, c: float, N: int) -> Cost:
    """Return the cost of AG: k (value, index) pairs from every rank to every rank."""
    return all_gather(2 * M * c, N)


def topk_a(M: float, c: float, N: int) -> Cost:
    """Return the cost of TopkA as published, by recursive doubling: that of AG, if N is a power of two.

    If not, the ranks beyond it hand over what they have first, and get everything at the end.
    """
    core, more = _core_of(N)
    return Cost(rounds(core) + more, (2 * N if more else N - 1) * 2 * M * c)


def artopk_ring(M: float, c: float, N: int) -> Cost:
    """Return the cost of AR-Topk over a ring (4a): k indices are broadcast, then k values all-reduced."""
    return broadcast(M * c, N) + ring_all_reduce(M * c, N)


def artopk_tree(M: float, c: float, N: int) -> Cost:
    """Return the cost of AR-Topk over a tree (4b)."""
    return broadcast(M * c, N) + tree_all_reduce(M * c, N)


def variance_vote(N: int) -> Cost:
    """Return what VAR adds to AR-Topk: every rank's squared norm, one float, is gathered to elect the leader."""
    return all_gather(BYTES_PER_ELEMENT, N)


def topk_dsa(M: float, c: float, N: int) -> Cost:
    """Return the cost of TopkDSA if ranks select independently, and the sums fill up accordingly."""
    filled = min(M, 2 * M * (1 - (1 - c) ** N))
    return Cost(1 + rounds(N), (N - 1) / N * (2 * M * c + filled))


def topk_dsa_range(M: float, c: float, N: int) -> CostRange:
    """Return the bounds of TopkDSA: sparse reduce-scatter, then an all-gather that may have filled up.

    Table I counts N messages of the reduce-scatter, which leave at once here, and log N more that tell sizes.
    """
    messages, share = 1 + rounds(N), (N - 1) / N
    dense = Cost(messages, share * (2 * M * c + M))
    return CostRange(Cost(messages, min(4 * share * M * c, dense.bytes)), dense)


def gtopk(M: float, c: float, N: int) -> Cost:
    """Return the cost of a binomial tree that re-selects k at each merge, and of a broadcast of the result."""
    return Cost(2 * rounds(N), 4 * rounds(N) * M * c)


def ok_topk(M: float, c: float, N: int) -> Cost:
    """Return the cost of Ok-Topk with balanced regions: k pairs to their owners, counts to all, k pairs to all."""
    return Cost(1 + 2 * rounds(N), 4 * (N - 1) / N * M * c)


def ok_topk_range(M: float, c: float, N: int) -> CostRange:
    """Return the bounds of Ok-Topk.

    The cost is highest if all k sums lie on one rank, and are passed on before they are gathered. Table I counts N
    messages of either exchange among all, which leave at once here.
    """
    messages, share = 1 + 2 * rounds(N), (N - 1) / N
    return CostRange(Cost(messages, 2 * share * M * c), Cost(messages + 1, 6 * share * M * c))


def spardl(M: float, c: float, N: int) -> Cost:
    """Return the cost of Spar-Reduce-Scatter and Bruck's all-gather, for any N."""
    return Cost(2 * rounds(N), 4 * (N - 1) / N * M * c)


def spardl_r_sag(M: float, c: float, N: int, d: int) -> Cost:
    """Return the cost of SparDL in d teams joined by recursive doubling: d is a power of two that divides N."""
    _require_teams(N, d)
    _require_power_of_two(d, "R-SAG's number of teams")
    messages = 2 * rounds(N // d) + rounds(d)
    return Cost(messages, 2 * M * c * ((2 * N - 2 * d) / N + d / N * rounds(d)))


def spardl_b_sag(M: float, c: float, N: int, d: int) -> CostRange:
    """Return the bounds of SparDL in d teams joined by Bruck's all-gather, for any d that divides N."""
    _require_teams(N, d)
    messages = 2 * rounds(N // d) + rounds(d)
    return CostRange(
        Cost(messages, 2 * (d * N + N - 2 * d) / (N * d) * M * c),
        Cost(messages, 2 * (d * d + 2 * N - 3 * d) / N * M * c),
    )


def exdyna(M: float, c: float, N: int, padding: float = 1.0) -> Cost:
    """Return the cost of ExDyna: indices are gathered, then k values all-reduced over a ring.

    The paper gathers counts first, in as many messages as the indices; here they travel with the indices.

    Args:
        M: Bytes of the float32 gradient.
        c: Compression ratio.
        N: Ranks.
        padding: f = N max k_i / sum k_i, the largest selection as a multiple of the mean one.
    """
    return Cost(rounds(N) + 2 * (N - 1), (N - 1) / N * (padding + 2) * M * c)


def arc_topk(M: float, c: float, N: int) -> Cost:
    """Return the cost of ARC-Top-K: a sketch of blocks is all-gathered, and the chosen values all-reduced in a ring.

    The number of blocks has a lower limit, so a small buffer's sketch is larger than its share of the values.
    """
    return arc_sketch(M, c, N) + ring_all_reduce(M * c, N)


def arc_sketch(M: float, c: float, N: int) -> Cost:
    """Return the sketch's part of `arc_topk`."""
    return all_gather(min(M, max(ARC_SKETCH_SHARE * M * c, ARC_FEWEST_BLOCKS * BYTES_PER_ELEMENT / c)), N)


# Inside a host ----------------------------------------------------------------------------------------


def on_host(M: float, arrives: float, P: int) -> float:
    """Return the seconds in which P ranks of a host reduce-scatter M bytes in a ring, and share the resulting parts.

    Args:
        M: Bytes of the float32 gradient.
        arrives: Bytes of all parts of the mean.
        P: Ranks of the host.
    """
    messages = P - 1 + rounds(P)
    return messages * LOCAL_LATENCY + (P - 1) / P * (M + arrives) / LOCAL_BANDWIDTH


def _core_of(N: int) -> tuple[int, int]:
    """Return the largest power of two in N, and the additional messages that the other ranks cost."""
    core = 1 << (N.bit_length() - 1)
    return core, 0 if core == N else 2


def _require_power_of_two(N: int, scheme: str) -> None:
    if N < 1 or N & (N - 1):
        raise ValueError(f"{scheme} has a closed form for powers of two only, and {N} is none")


def _require_teams(N: int, d: int) -> None:
    if d < 1 or N % d:
        raise ValueError(f"the number of teams divides the number of ranks, and {d} does not divide {N}")
