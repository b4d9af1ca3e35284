"""Every scheme by name: its cost, the ranks it runs on, and its options, in one place and without torch.

A plan has axes: collective, sparsifier, fusion planner, schedule, source, wire format. Each axis has a file of rows, a
row a scheme. Code that plans, predicts, validates, reports or runs a scheme asks its row, and knows no scheme by name.
"""

from trimtab_api.catalogue.auto_options import expand, normalize_choice
from trimtab_api.catalogue.collectives import collectives
from trimtab_api.catalogue.costs import BYTES_PER_ELEMENT, Cost, CostRange
from trimtab_api.catalogue.exchange_costs import (
    between_hosts,
    choices,
    collective_cost,
    cost_range,
    cost_table,
    per_host,
    rank_count_error,
    within_hosts,
)
from trimtab_api.catalogue.fusion import DEFAULT_BUFFER_BYTES, asks_for_ahead, behind, planners
from trimtab_api.catalogue.options import Option, positive, whole_number
from trimtab_api.catalogue.plan_text import (
    AXES,
    DENSE,
    ParsedPlan,
    check_ratio,
    format_plan,
    parse_plan_text,
    reads_no_sparsifier,
    selects_not_by_tensor,
)
from trimtab_api.catalogue.registry import Registry
from trimtab_api.catalogue.rows import Collective, Row, Schedule, Sparsifier, Wire
from trimtab_api.catalogue.schedules import schedules
from trimtab_api.catalogue.sources import SourceOptions, source_options, sources
from trimtab_api.catalogue.sparsifiers import sparsifiers
from trimtab_api.catalogue.wires import wires

__all__ = [
    "AXES",
    "BYTES_PER_ELEMENT",
    "COLLECTIVES",
    "DEFAULT_BUFFER_BYTES",
    "DEFAULT_COLLECTIVES",
    "DENSE",
    "DENSE_COLLECTIVES",
    "SPARSE_COLLECTIVES",
    "SPARSIFIERS",
    "VALUE_FORMATS",
    "Collective",
    "Cost",
    "CostRange",
    "Option",
    "ParsedPlan",
    "Registry",
    "Row",
    "Schedule",
    "SourceOptions",
    "Sparsifier",
    "Wire",
    "asks_for_ahead",
    "behind",
    "between_hosts",
    "check_ratio",
    "choices",
    "collective_cost",
    "collectives",
    "cost_range",
    "cost_table",
    "expand",
    "format_plan",
    "normalize_choice",
    "parse_plan_text",
    "per_host",
    "planners",
    "positive",
    "rank_count_error",
    "reads_no_sparsifier",
    "schedules",
    "selects_not_by_tensor",
    "source_options",
    "sources",
    "sparsifiers",
    "whole_number",
    "wires",
    "within_hosts",
]

#: Names of what is built in, as the CRD lists them.
COLLECTIVES = collectives.built_in
DENSE_COLLECTIVES = tuple(name for name in COLLECTIVES if collectives[name].is_dense)
SPARSE_COLLECTIVES = tuple(name for name in COLLECTIVES if not collectives[name].is_dense)
#: The collectives to choose from in a job that names none.
DEFAULT_COLLECTIVES = tuple(name for name in SPARSE_COLLECTIVES if collectives[name].is_default)
SPARSIFIERS = sparsifiers.built_in
VALUE_FORMATS = wires.built_in
