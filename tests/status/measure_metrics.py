"""What metrics cost: a scrape, and what a training step does for them: `python tests/status/measure_metrics.py`."""

import json
import statistics
import tempfile
import time
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from test_run_metrics import DECISION, STEP
from trimtab.engine.phase_clock import PHASES, PhaseClock
from trimtab.records.recorder import Recorder
from trimtab.records.run_directory import RunDirectory
from trimtab.status.metrics import RunMetrics

#: Steps between two scrapes: of 0.1 s each, scraped every 15 s.
STEPS, STEP_SECONDS, SCRAPES = 150, 0.1, 50
#: Of the time that training takes.
MOST_SHARE = 0.005


def main() -> None:
    with tempfile.TemporaryDirectory() as path:
        directory = RunDirectory(Path(path))
        directory.decisions.write_text(json.dumps(DECISION) + "\n")
        registry = CollectorRegistry()
        registry.register(RunMetrics(directory))
        recorder, clock = Recorder(directory.path), PhaseClock()
        recorder.begin()
        scrapes, steps = [], []
        for _ in range(SCRAPES):
            begun = time.process_time()
            for _ in range(STEPS):
                take_step(recorder, clock)
            steps.append((time.process_time() - begun) / STEPS)
            begun = time.process_time()
            text = generate_latest(registry).decode()
            scrapes.append(time.process_time() - begun)
    scrape, step = statistics.median(scrapes), statistics.median(steps)
    series = sum(not line.startswith("#") for line in text.splitlines())
    print(f"a scrape {1e3 * scrape:.1f} ms of a processor, {scrape / (STEPS * STEP_SECONDS):.3%} of its time;", end=" ")
    print(f"a training step {1e6 * step:.0f} us, {step / STEP_SECONDS:.3%}; {series} series")
    shortest = (step + scrape / STEPS) / MOST_SHARE
    print(f"both are at most {MOST_SHARE:.1%} of steps of {1e3 * shortest:.1f} ms and longer")


def take_step(recorder: Recorder, clock: PhaseClock) -> None:
    """What rank 0 does for a step's metrics: it tells the phases apart, and writes its line."""
    for phase in PHASES:
        clock.enter(phase)
    told = {f"{phase}_seconds": seconds for phase, seconds in clock.lap().items()}
    recorder.metric(STEP | told)


if __name__ == "__main__":
    main()
