"""The cost of exchanging one buffer, by its row, and in two levels if ranks share hosts.

Where ``per_host`` = P ranks share each of N / P hosts, a host's ranks sum the gradient among themselves, each a P-th of
it. Every rank then exchanges its own part with the ranks of the other hosts that have the same part, by the collective.
P exchanges of M / P bytes cross a host's network device side by side; exchanges inside hosts take times of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trimtab_api.catalogue import costs
from trimtab_api.catalogue.auto_options import expand
from trimtab_api.catalogue.collectives import PER_HOST, collectives
from trimtab_api.catalogue.costs import Cost, CostRange
from trimtab_api.catalogue.rows import Collective
from trimtab_api.catalogue.wires import wires


def per_host(collective: str) -> int:
    """Return P, the ranks of each host that sum first; 1 if none do."""
    count: int = collectives.options(collective)[PER_HOST.name]
    return count


def between_hosts(collective: str) -> str:
    """Return the collective between hosts: ``collective`` without `PER_HOST`."""
    return collectives.with_options(collective, **{PER_HOST.name: 1})


def within_hosts(collective: str, num_ranks: int) -> str:
    """Return ``collective`` among so many ranks of each host; itself if a host has one."""
    return collectives.with_options(collective, **{PER_HOST.name: num_ranks})


def collective_cost(collective: str, M: float, c: float, N: int, wire: str = wires.default, on_each: int = 1) -> Cost:
    """Return the cost of exchanging one buffer. One rank exchanges nothing.

    Args:
        collective: The collective's text.
        M: Bytes of the float32 gradient.
        c: Compression ratio; 1 for dense.
        N: Ranks.
        wire: The format of values.
        on_each: Ranks that share each host, and so its network device, whether or not they sum first.
    """
    if N == 1:
        return Cost(0, 0)
    P = per_host(collective)
    if P > 1:
        part = collective_cost(between_hosts(collective), M / P, c, N // P, wire)
        return _on_hosts(part, collective, M, c, N)
    row = collectives[collective]
    exact: Cost = row.cost(M, c, N, **_options(collective))
    exact = replace(exact, bytes=exact.bytes * _crossing(row, N, on_each))
    if wire == wires.default:
        return exact
    others = row.overhead_cost(M, c, N, **_options(collective)).bytes * _crossing(row, N, on_each)
    share = wires[wire].bytes_per_value / costs.BYTES_PER_ELEMENT
    return Cost(exact.messages, others + (exact.bytes - others) * share)


def _crossing(row: Collective, N: int, on_each: int) -> float:
    """Return how many ranks' bytes cross a host's device: those for other hosts, if each rank sends to all alike.

    Around a ring, and down a tree, one of a host's ranks sends to the next host.
    """
    if row.pattern in ("ring", "tree") or on_each >= N:
        return 1.0
    return on_each * (N - on_each) / (N - 1)


def cost_range(collective: str, M: float, c: float, N: int, on_each: int = 1) -> CostRange:
    """Return the bounds of `collective_cost` by what the ranks select; equal ones if that does not matter."""
    P = per_host(collective)
    if P > 1 and N > 1:
        ends = cost_range(between_hosts(collective), M / P, c, N // P)
        return CostRange(*(_on_hosts(end, collective, M, c, N) for end in (ends.least, ends.most)))
    given = collectives[collective].cost_range
    if N == 1 or given is None:
        one = collective_cost(collective, M, c, N, on_each=on_each)
        return CostRange(one, one)
    ends = given(M, c, N, **_options(collective))
    times = _crossing(collectives[collective], N, on_each)
    return CostRange(*(replace(end, bytes=times * end.bytes) for end in (ends.least, ends.most)))


def rank_count_error(collective: str, N: int, on_hosts: Sequence[int] | None = None) -> str | None:
    """Return why a collective, with its options, does not run on ``N`` ranks; None if it does.

    Args:
        collective: The collective's text.
        N: Ranks.
        on_hosts: Ranks of each host, if known.
    """
    P = per_host(collective)
    if P == 1:
        return collectives[collective].rank_count_error(N, **_options(collective))
    sizes = sorted(set(on_hosts if on_hosts is not None else [P] if N % P == 0 else []))
    if sizes != [P]:
        counts = f"here hosts have {' or '.join(map(str, sizes))}" if sizes else f"{N} ranks make no such hosts"
        return f"sums on hosts of {P} ranks each, and {counts}; leave per_host out, or give each host {P}"
    return rank_count_error(between_hosts(collective), N // P)


def choices(names: Sequence[str], workers: int, on_each: int) -> tuple[str, ...]:
    """Return the collectives that run on so many ranks of each worker, and those that run between such workers.

    An option that is ``auto`` stands for each of its legal values.
    """
    num_ranks = workers * on_each
    among_ranks = [spec for name in names for spec in expand(name, num_ranks)]
    between_workers = [within_hosts(spec, on_each) for name in names for spec in expand(name, workers)]
    specs = (*among_ranks, *(between_workers if workers > 1 else ()))
    return tuple(dict.fromkeys(spec for spec in specs if not rank_count_error(spec, num_ranks, [on_each])))


def cost_table(M: float, c: float, N: int, P: int = 1) -> list[tuple[str, Cost | CostRange]]:
    """Return the cost of a whole gradient in one buffer, by name, for every scheme with a closed form at N ranks.

    The table has each collective in every format in which it sends values and between hosts of ``P`` ranks, and beside
    them those of the papers.
    """
    rows: list[tuple[str, Cost | CostRange]] = [("parameter-server", costs.parameter_server(M, N))]
    for row in collectives.rows():
        specs = (row.name, *(f"{row.name}:{options}" for options in row.table_variants))
        for spec in dict.fromkeys((*specs, *(within_hosts(each, P) for each in specs))):
            if rank_count_error(spec, N) is None:
                ends = cost_range(spec, M, c, N, P)
                rows.append((spec, ends.least if ends.least == ends.most else ends))
        for wire in row.wires[1:]:
            rows.append((f"{row.name}/wire={wire}", collective_cost(row.name, M, c, N, wire, P)))
    return rows


def _on_hosts(part: Cost, collective: str, M: float, c: float, N: int) -> Cost:
    """Return the cost of all ranks that share a host's network device, given that of one rank's part."""
    P, row = per_host(collective), collectives[collective]
    arrives = M if row.is_dense else min(M, 2 * M * row.arriving(c, N // P))
    return replace(part, bytes=P * part.bytes, local_seconds=costs.on_host(M, arrives, P))


def _options(collective: str) -> dict[str, Any]:
    """Return the options that the functions of a collective's row take."""
    return {name: value for name, value in collectives.options(collective).items() if name != PER_HOST.name}
