"""One colour a plan, the same in every chart, table and ribbon; the style sheet holds the colours themselves.

Lines have a dash beside their colour, for those who do not tell the colours apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_api.catalogue import collectives, parse_plan_text
from trimtab_api.catalogue.rows import Pattern
from trimtab_api.errors import UserError

#: Style-sheet variable of each pattern in which a collective's values travel; its ratio makes it fainter.
_COLORS: dict[Pattern, str] = {"all-gather": "--ag", "ring": "--ring", "tree": "--tree", "other": "--other-plan"}
#: Dashes of its lines, as SVG has them; those of adaptive and dense are solid.
_DASHES: dict[Pattern, str] = {"all-gather": "8 3", "ring": "2 3", "tree": "9 3 2 3", "other": "5 5"}
#: Dashes of the second, third, ... plan of one colour.
_ALIKE = ("12 4", "1 4", "12 3 1 3", "4 8")


def color(plan: str) -> str:
    """Return a CSS colour: adaptive has its own, a static plan its collective's, fainter the smaller its ratio."""
    if plan == "adaptive":
        return "var(--adaptive)"
    if plan.startswith("dense"):
        return "var(--dense)"
    pattern, ratio = _travels(plan)
    variable, decades = _COLORS[pattern], math.log10(ratio)
    # 0.1 in full, 0.001 at 60%: a decade is 20%.
    strength = round(100 * min(1.0, max(0.6, 1.0 + 0.2 * (decades + 1))))
    return f"color-mix(in oklab, var({variable}) {strength}%, var(--card))"


@dataclass(frozen=True)
class Style:
    """The look of a run in charts and tables."""

    color: str
    """A colour of CSS."""
    line: str
    """The style of its lines."""


def style(plan: str) -> Style:
    """Return the style of a plan's run; adaptive and dense stand out."""
    if plan == "adaptive" or plan.startswith("dense"):
        return _solid(color(plan))
    return _dashed(color(plan), _travels(plan)[0])


def styles_of_plans(plans: Sequence[str]) -> dict[str, Style]:
    """Return the styles of some plans' runs; those that share a collective have dashes of their own, in turn."""
    styles: dict[str, Style] = {}
    for plan in plans:
        looks = style(plan)
        alike = sum(each.color == looks.color for each in styles.values())
        styles[plan] = (
            looks if alike == 0 else Style(looks.color, _dashes(looks.color, _ALIKE[(alike - 1) % len(_ALIKE)]))
        )
    return styles


def styles_in_turn(names: Sequence[str]) -> dict[str, Style]:
    """Return styles for runs that their plans do not tell apart: one after another, again from the first after six."""
    looks = [_solid("var(--adaptive)"), _solid("var(--dense)")]
    looks += [_dashed(f"var({variable})", pattern) for pattern, variable in _COLORS.items()]
    return {name: looks[number % len(looks)] for number, name in enumerate(names)}


def _solid(color: str) -> Style:
    return Style(color, f"stroke: {color}; stroke-width: 2.4")


def _dashed(color: str, pattern: Pattern) -> Style:
    return Style(color, _dashes(color, _DASHES[pattern]))


def _dashes(color: str, dashes: str) -> str:
    return f"stroke: {color}; stroke-width: 1.6; stroke-dasharray: {dashes}"


def _travels(plan: str) -> tuple[Pattern, float]:
    """Return how a static plan's values travel, and their ratio; "other" and 0.1 for another version's plan."""
    try:
        told = parse_plan_text(plan)
    except UserError:
        return "other", 0.1
    return collectives[told.collective].pattern, told.ratio
