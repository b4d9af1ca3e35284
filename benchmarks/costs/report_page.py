"""How large the report of a long run is, and how long Chromium takes to open it.

It counts from the start of loading until all is laid out, as the page's own clock tells.

Needs Chromium; takes half a minute.
"""

import statistics
import tempfile
import time
from pathlib import Path

from fake_runs import PHASES, decision, write_lines, write_run
from kit.browser import look
from results import record
from trimtab.report.comparison import read_comparison
from trimtab.report.page import render_page

STEPS, STEP_SECONDS, DECISIONS, TIMES = 10_000, 0.1, 300, 5
OPENED = "for (const each of document.querySelectorAll('details')) each.open = true;"
LAID_OUT = "document.body.getBoundingClientRect(); return performance.now();"


def main() -> None:
    with tempfile.TemporaryDirectory() as path:
        directory = Path(path)
        write_run(directory / "run", "dense", STEP_SECONDS, 1.1 * STEPS * STEP_SECONDS)
        lines = [decision(n, n, float(n), "dense-ring", "0.011/all-gather", PHASES[1]) for n in range(DECISIONS)]
        write_lines(directory / "run/decisions.jsonl", [line for each in lines for line in each])
        begun = time.perf_counter()
        comparison = read_comparison(directory / "run")
        page = render_page(comparison)
        made = time.perf_counter() - begun
        opened, times = {}, {}
        for name, script in (("as it is", LAID_OUT), ("all unfolded", OPENED + LAID_OUT)):
            times[name] = [look(page, script, directory, dark=False)[0] / 1e3 for _ in range(TIMES)]
            opened[name] = statistics.median(times[name])
    record("report-size", len(page.encode()) / 1e6)
    record("report-open", *times["as it is"])
    steps = len(comparison.featured.training_steps)
    print(f"{steps} steps, {DECISIONS} decisions: made in {made:.2f} s, {len(page.encode()) / 1e6:.2f} MB", end="")
    print("; ".join(["", *(f"opened {name} in {seconds:.2f} s" for name, seconds in opened.items())]))


if __name__ == "__main__":
    main()
