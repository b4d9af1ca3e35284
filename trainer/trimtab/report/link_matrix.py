"""Every link of a run's network, as last measured: a heat map of bandwidths and one of latencies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set

from trimtab_api.units import format_bandwidth, format_duration

from trimtab.run_files.reader import Run

#: Least ratio of the fastest link to the slowest one from which the slowest has the strongest colour.
LEAST_SPREAD = 2.0


def link_matrices(run: Run) -> str:
    """Draw both heat maps; empty where the run was of one worker, or of a version that kept no links."""
    bandwidths = {(link.source, link.target): link.bandwidth for link in run.links if link.bandwidth}
    latencies = {(link.source, link.target): link.latency for link in run.links if link.latency}
    stale_bandwidths = {(link.source, link.target) for link in run.links if link.bandwidth_stale}
    stale_latencies = {(link.source, link.target) for link in run.links if link.latency_stale}
    found = [
        _matrix("bandwidth", bandwidths, stale_bandwidths, format_bandwidth, low_is_bad=True),
        _matrix("latency, one way", latencies, stale_latencies, format_duration, low_is_bad=False),
    ]
    return f'<div class="matrices">{"".join(found)}</div>' if any(found) else ""


def _matrix(
    name: str,
    values: Mapping[tuple[int, int], float],
    stale: Set[tuple[int, int]],
    text: Callable[[float], str],
    *,
    low_is_bad: bool,
) -> str:
    if not values:
        return ""
    workers = sorted({worker for pair in values for worker in pair})
    current = [value for pair, value in values.items() if pair not in stale]
    shade = _shades(current, low_is_bad=low_is_bad) if current else None
    head = "".join(f"<th>{worker}</th>" for worker in workers)
    rows = []
    for source in workers:
        cells = [f"<th>{source}</th>"]
        for target in workers:
            value = values.get((source, target))
            if value is None:
                cells.append("<td></td>" if source == target else "<td>–</td>")
            elif shade is None or (source, target) in stale:
                cells.append(f'<td class="stale">({text(value)})</td>')
            else:
                cells.append(f'<td style="{shade(value)}">{text(value)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    caption = f"<caption>{name}</caption>"
    return (
        f'<table class="matrix">{caption}<thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )


def _shades(values: list[float], *, low_is_bad: bool) -> Callable[[float], str]:
    """Return a function that gives the style of a cell by its value, which is one of these."""
    best, worst = (max, min) if low_is_bad else (min, max)
    low, high = math.log(best(values)), math.log(worst(values))
    spread = math.copysign(max(abs(high - low), math.log(LEAST_SPREAD)), high - low)

    def style(value: float) -> str:
        share = (math.log(value) - low) / spread
        return f"background: color-mix(in oklab, var(--slow) {8 + 62 * share:.0f}%, var(--card))"

    return style
