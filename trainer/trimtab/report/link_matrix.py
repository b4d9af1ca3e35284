"""Every link of a run's network, as last measured: a heat map of bandwidths and one of latencies."""

from __future__ import annotations

import math
from collections.abc import Callable

from trimtab_api.units import format_bandwidth, format_duration

from trimtab.records.run_reader import Run

#: By how many times the slowest link must differ from the fastest one to have the strongest colour.
LEAST_SPREAD = 2.0


def link_matrices(run: Run) -> str:
    """Both heat maps; empty where the run was of one worker, or of a version that kept no links."""
    bandwidths = {(link.source, link.target): link.bandwidth for link in run.links if link.bandwidth}
    latencies = {(link.source, link.target): link.latency for link in run.links if link.latency}
    found = [
        _matrix("bandwidth", bandwidths, format_bandwidth, low_is_bad=True),
        _matrix("latency, one way", latencies, format_duration, low_is_bad=False),
    ]
    return f'<div class="matrices">{"".join(found)}</div>' if any(found) else ""


def _matrix(name: str, values: dict[tuple[int, int], float], text: Callable[[float], str], *, low_is_bad: bool) -> str:
    if not values:
        return ""
    workers = sorted({worker for pair in values for worker in pair})
    best, worst = (max, min) if low_is_bad else (min, max)
    low, high = math.log(best(values.values())), math.log(worst(values.values()))
    spread = math.copysign(max(abs(high - low), math.log(LEAST_SPREAD)), high - low)
    head = "".join(f"<th>{worker}</th>" for worker in workers)
    rows = []
    for source in workers:
        cells = [f"<th>{source}</th>"]
        for target in workers:
            value = values.get((source, target))
            if value is None:
                cells.append("<td></td>" if source == target else "<td>–</td>")
                continue
            share = (math.log(value) - low) / spread
            style = f"background: color-mix(in oklab, var(--slow) {8 + 62 * share:.0f}%, var(--card))"
            cells.append(f'<td style="{style}">{text(value)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    caption = f"<caption>{name}</caption>"
    return (
        f'<table class="matrix">{caption}<thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )
