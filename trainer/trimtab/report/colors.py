"""One colour a plan, the same in every chart, table and ribbon; the style sheet holds the colours themselves."""

from __future__ import annotations

import math

from trimtab_api.catalogue import collectives, read_plan
from trimtab_api.catalogue.rows import Pattern
from trimtab_api.errors import UserError

#: Style-sheet variable of each pattern in which a collective's values travel; its ratio makes it fainter.
_COLORS: dict[Pattern, str] = {"all-gather": "--ag", "ring": "--ring", "tree": "--tree", "other": "--other"}


def color(plan: str) -> str:
    """A CSS colour: adaptive has its own, a static plan that of its collective, fainter the smaller its ratio."""
    if plan == "adaptive":
        return "var(--adaptive)"
    if plan.startswith("dense"):
        return "var(--dense)"
    try:
        told = read_plan(plan)
    except UserError:  # a plan that another version of Trimtab wrote
        return "var(--other)"
    variable, decades = _COLORS[collectives[told.collective].pattern], math.log10(told.ratio)
    # 0.1 in full, 0.001 at 45%: a decade is some 27%.
    strength = round(100 * min(1.0, max(0.45, 1.0 + 0.275 * (decades + 1))))
    return f"color-mix(in oklab, var({variable}) {strength}%, var(--card))"


def stroke(plan: str) -> str:
    """The style of a plan's line: adaptive and dense stand out."""
    return f"stroke: {color(plan)}; stroke-width: {2.4 if plan in ('adaptive', 'dense') else 1.5}"
