"""One colour a plan, the same in every chart, table and ribbon; the style sheet holds the colours themselves.

Lines have a dash beside their colour, for those who do not tell the colours apart.
"""

from __future__ import annotations

import math

from trimtab_api.catalogue import collectives, read_plan
from trimtab_api.catalogue.rows import Pattern
from trimtab_api.errors import UserError

#: Style-sheet variable of each pattern in which a collective's values travel; its ratio makes it fainter.
_COLORS: dict[Pattern, str] = {"all-gather": "--ag", "ring": "--ring", "tree": "--tree", "other": "--other-plan"}
#: Dashes of its lines, as SVG has them; those of adaptive and dense are solid.
_DASHES: dict[Pattern, str] = {"all-gather": "8 3", "ring": "2 3", "tree": "9 3 2 3", "other": "5 5"}


def color(plan: str) -> str:
    """A CSS colour: adaptive has its own, a static plan that of its collective, fainter the smaller its ratio."""
    if plan == "adaptive":
        return "var(--adaptive)"
    if plan.startswith("dense"):
        return "var(--dense)"
    pattern, ratio = _travels(plan)
    variable, decades = _COLORS[pattern], math.log10(ratio)
    # 0.1 in full, 0.001 at 60%: a decade is 20%.
    strength = round(100 * min(1.0, max(0.6, 1.0 + 0.2 * (decades + 1))))
    return f"color-mix(in oklab, var({variable}) {strength}%, var(--card))"


def stroke(plan: str) -> str:
    """The style of a plan's line: adaptive and dense stand out."""
    if plan == "adaptive" or plan.startswith("dense"):
        return f"stroke: {color(plan)}; stroke-width: 2.4"
    return f"stroke: {color(plan)}; stroke-width: 1.6; stroke-dasharray: {_DASHES[_travels(plan)[0]]}"


def _travels(plan: str) -> tuple[Pattern, float]:
    """How a static plan's values travel, and their ratio; "other" and 0.1 for what another version of Trimtab wrote."""
    try:
        told = read_plan(plan)
    except UserError:
        return "other", 0.1
    return collectives[told.collective].pattern, told.ratio
