"""What a scrape of a run's metrics costs: `python tests/status/measure_metrics.py`."""

import json
import statistics
import tempfile
import time
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from test_run_metrics import DECISION, STEP
from trimtab.records.run_directory import RunDirectory
from trimtab.status.metrics import RunMetrics

#: Steps between two scrapes: of 0.1 s each, scraped every 15 s.
STEPS, STEP_SECONDS, SCRAPES = 150, 0.1, 50


def main() -> None:
    with tempfile.TemporaryDirectory() as path:
        directory = RunDirectory(Path(path))
        directory.decisions.write_text(json.dumps(DECISION) + "\n")
        registry = CollectorRegistry()
        registry.register(RunMetrics(directory))
        costs = []
        for _ in range(SCRAPES):
            with directory.metrics.open("a") as file:
                file.write((json.dumps(STEP) + "\n") * STEPS)
            begun = time.process_time()
            text = generate_latest(registry).decode()
            costs.append(time.process_time() - begun)
    cost = statistics.median(costs)
    series = sum(not line.startswith("#") for line in text.splitlines())
    print(f"{1e3 * cost:.1f} ms of a processor, {cost / (STEPS * STEP_SECONDS):.3%} of its time; {series} series")


if __name__ == "__main__":
    main()
