"""`docs/reference/schemes.md`, from the rows of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from generated import NOTE, cell
from trimtab_api.catalogue import Registry, collectives, planners, schedules, sources, sparsifiers, wires
from trimtab_api.catalogue.options import Option


def schemes() -> str:
    """Return the page of all schemes and their options."""
    axes: tuple[tuple[str, str, Registry[Any]], ...] = (
        ("Collectives", "A collective sums what the ranks send. Write it after the ratio", collectives),
        ("Sparsifiers", "A sparsifier selects the elements to send. Write `/sparsifier=NAME`", sparsifiers),
        ("Fusion planners", "A fusion planner decides which gradients share a bucket. Write `/fusion=NAME`", planners),
        ("Schedules", "A schedule decides when buckets are sent. Write `/schedule=NAME`", schedules),
        ("Sources", "A source is what ranks exchange. Write `/source=NAME`", sources),
        (
            "Value formats",
            "A value format is how a value is coded; residuals keep what rounding loses. Write `/wire=NAME`",
            wires,
        ),
    )
    lines = ["# Schemes", "", NOTE, ""]
    lines += [
        "A plan is `dense`, or `RATIO/COLLECTIVE` such as `0.01/all-gather`. Append other schemes as `/AXIS=NAME`,"
    ]
    lines += [
        "and their options as `:OPTION=VALUE`: `0.01/all-gather/sparsifier=sidco:fit=pareto`. If a plan does not name"
    ]
    lines += ["an axis, it uses the first scheme of the table. Options show their defaults; one without must be named."]
    lines += ["`trimtab plan` prints the cost of each collective.", ""]
    for title, what, registry in axes:
        lines += [f"## {title}", "", f"{what}.", "", "| name | what it does | options |", "|---|---|---|"]
        shown: dict[str, str] = {}
        for name in registry.built_in:
            row = registry[name]
            options = _options(row.options)
            first = shown.setdefault(options, name)
            lines.append(
                f"| `{name}` | {cell(row.meaning)} | {options if name == first or not options else f'as `{first}`'} |"
            )
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def _options(options: Iterable[Option]) -> str:
    return "; ".join(f"`{_with_default(each)}`: {cell(each.meaning)}" for each in options)


def _with_default(option: Option) -> str:
    return option.name if option.default is None else f"{option.name}={option.default}"
