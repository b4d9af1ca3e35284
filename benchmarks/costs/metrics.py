"""What metrics cost: a scrape, and what a training step does for them.

Needs nothing more; takes a minute.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from results import record
from run_lines import DECISION, STEP
from trimtab.engine.phase_timer import PHASES, PhaseTimer
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.recorder import Recorder
from trimtab.status.metrics import RunMetrics

#: Steps of these lengths, scraped so often, and their shares told; each scrape measured so many times.
STEP_SECONDS, SCRAPE_SECONDS, SCRAPES = (0.1, 0.005), 15.0, 30
#: Steps between two of the scrapes that are measured: as many as are taken of the shorter ones.
STEPS = int(SCRAPE_SECONDS / STEP_SECONDS[-1])
#: Of the time that training takes.
MOST_SHARE = 0.005


def main() -> None:
    with tempfile.TemporaryDirectory() as path:
        directory = RunDirectory(Path(path))
        directory.decisions.write_text(json.dumps(DECISION) + "\n")
        registry = CollectorRegistry()
        registry.register(RunMetrics(directory))
        recorder, clock = Recorder(directory.path), PhaseTimer()
        recorder.begin()
        steps, scrapes, idle = [], [], []
        for _ in range(SCRAPES):
            steps.append(processor_seconds(lambda: [take_step(recorder, clock) for _ in range(STEPS)]) / STEPS)
            scrapes.append(processor_seconds(lambda: generate_latest(registry)))
            idle.append(processor_seconds(lambda: generate_latest(registry)))  # nothing new has been written
        text = generate_latest(registry).decode()
    step, each_scrape = statistics.median(steps), statistics.median(idle)
    reading = (statistics.median(scrapes) - each_scrape) / STEPS
    series = sum(not line.startswith("#") for line in text.splitlines())
    print(
        f"of a processor: a training step {1e6 * step:.1f} us, and {1e6 * reading:.1f} us where it is scraped;", end=" "
    )
    print(f"a scrape {1e3 * each_scrape:.2f} ms, every {SCRAPE_SECONDS:g} s; {series} series")
    each_second = each_scrape / SCRAPE_SECONDS
    for seconds in STEP_SECONDS:
        share = (step + reading) / seconds + each_second
        if seconds == STEP_SECONDS[-1]:
            record("metrics-share", 100 * share)
        print(f"steps of {1e3 * seconds:g} ms: {share:.3%}, of which {step / seconds:.3%} in training")
    print(f"under {MOST_SHARE:.1%} of steps of {1e3 * (step + reading) / (MOST_SHARE - each_second):.1f} ms and longer")


def processor_seconds(act: Callable[[], object]) -> float:
    """What ``act`` takes of a processor."""
    begun = time.process_time()
    act()
    return time.process_time() - begun


def take_step(recorder: Recorder, clock: PhaseTimer) -> None:
    """What rank 0 does for a step's metrics: it tells the phases apart, and writes its line."""
    for phase in PHASES:
        clock.enter(phase)
    told = {f"{phase}_seconds": seconds for phase, seconds in clock.lap().items()}
    recorder.metric(STEP | told)


if __name__ == "__main__":
    main()
