"""What each scheme costs on a network, beside schemes of the papers that no plan can name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trimtab_api.catalogue import costs
from trimtab_api.catalogue.collective import CollectiveRow, any_number, even, power_of_two
from trimtab_api.catalogue.costs import Cost, CostRange


@dataclass(frozen=True)
class Comparison:
    """One line of the table: a whole gradient in one buffer."""

    scheme: str
    cost: Cost | CostRange
    is_dense: bool
    can_be_planned: bool


@dataclass(frozen=True)
class _Paper:
    name: str
    cost: Callable[[float, float, int], Cost | CostRange]
    supports: Callable[[int], str | None] = any_number


_SPARSE = (
    _Paper("topk-dsa", costs.topk_dsa, power_of_two),
    _Paper("gtopk", costs.gtopk, power_of_two),
    _Paper("ok-topk", costs.ok_topk, power_of_two),
    _Paper("spardl", costs.spardl),
    _Paper("spardl-r-sag-2", lambda M, c, N: costs.spardl_r_sag(M, c, N, 2), even),
    _Paper("spardl-b-sag-2", lambda M, c, N: costs.spardl_b_sag(M, c, N, 2), even),
    _Paper("exdyna", costs.exdyna),
)


def cost_table(rows: Iterable[CollectiveRow], M: float, c: float, N: int) -> list[Comparison]:
    """Every scheme that works for these N ranks; dense ones first."""
    planned = [
        Comparison(row.name, row.cost_at(M, c, N), row.is_dense, can_be_planned=True)
        for row in rows
        if row.supports(N) is None
    ]
    return [
        Comparison("parameter-server", costs.parameter_server(M, N), is_dense=True, can_be_planned=False),
        *sorted(planned, key=lambda each: not each.is_dense),
        *(
            Comparison(paper.name, paper.cost(M, c, N), is_dense=False, can_be_planned=False)
            for paper in _SPARSE
            if paper.supports(N) is None
        ),
    ]
