"""What share of its steps a job of local steps still takes while two faults a minute happen.

    python benchmarks training/throughput_under_faults --minutes 5 --seed 1

Four ranks on the emulated network train by local steps and keep checkpoints. They train without faults, then as long
with them, and then without again. Faults come every half minute in the mix of torchft's published run: 44% kills of a
rank, the rest stops of a rank and partitions, which last some seconds. A kill has all ranks start again.

Needs root and /dev/net/tun; takes three times the minutes that it is given.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from results import record
from soak.fault_plan import NUM_RANKS, Fault, Kind
from soak.make_fault import applied, volume
from soak.soaked_job import SoakedJob

PLAN = "0.1/all-gather/source=update:steps=16"
#: Of torchft's 62 faults in half an hour 27 were kills.
SHARE_OF_KILLS = 27 / 62
SECONDS_BETWEEN = 30.0
#: Longest stop or partition [s]; torchft's run does not tell.
LONGEST = 5.0
FIRST_STEP_SECONDS = 300.0


@dataclass(frozen=True)
class Stretch:
    """What a job did in some minutes."""

    seconds: float
    steps: int
    faults: Sequence[Kind] = ()
    idle: float = 0.0
    """Seconds from a kill until each rank stepped again, all kills together."""

    @property
    def rate(self) -> float:
        """Steps a second."""
        return self.steps / self.seconds


def newest_step(job: SoakedJob) -> int:
    """Return the step that the job has come to, after what was lost."""
    job.read_records()
    return int(max(job.last_steps.values(), key=lambda line: line["time"])["step"])


def wait(job: SoakedJob, until: float) -> None:
    """Let the job train until that moment of the monotonic clock."""
    while time.monotonic() < until:
        job.read_records()
        time.sleep(0.05)


def train(job: SoakedJob, seconds: float) -> Stretch:
    """Train without faults."""
    before, began = newest_step(job), time.monotonic()
    wait(job, began + seconds)
    return Stretch(seconds, newest_step(job) - before)


def train_through_faults(job: SoakedJob, seconds: float, draw: random.Random) -> Stretch:
    """Train while a fault comes every `SECONDS_BETWEEN`, whether or not the one before is over."""
    before, began, kinds, idle = newest_step(job), time.monotonic(), list[Kind](), 0.0
    due = began + SECONDS_BETWEEN / 2
    while due < began + seconds:
        wait(job, due)
        kind = Kind.KILL_RANK if draw.random() < SHARE_OF_KILLS else draw.choice((Kind.STOP_RANK, Kind.PARTITION))
        target, other = draw.sample(range(NUM_RANKS), 2)
        fault = Fault(kind, 0.0, 0.0 if kind is Kind.KILL_RANK else draw.uniform(1.0, LONGEST), target, other)
        try:
            with applied(fault, job):
                wait(job, time.monotonic() + fault.seconds)
            kinds.append(kind)
        except (LookupError, OSError, psutil.Error):  # the ranks are still starting: there is none to harm
            pass
        if kind is Kind.KILL_RANK:
            killed = time.monotonic()
            while not job.all_ranks_stepped_since(killed) and time.monotonic() < began + seconds:
                time.sleep(0.05)
            idle += time.monotonic() - killed
        due += SECONDS_BETWEEN
    wait(job, began + seconds)
    return Stretch(time.monotonic() - began, newest_step(job) - before, kinds, idle)


def main() -> None:
    """Measure once, and print the share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trimtab-faults-")) / "job"
    folder.mkdir()
    job = SoakedJob(folder, PLAN, {})
    with volume(job.checkpoints):
        try:
            began = time.monotonic()
            job.start()
            while not job.all_ranks_stepped_since(began):
                if time.monotonic() - began > FIRST_STEP_SECONDS:
                    raise SystemExit(f"no step within {FIRST_STEP_SECONDS:g} s; {job.output} says why")
                time.sleep(0.05)
            seconds = args.minutes * 60
            stretches = [
                train(job, seconds),
                train_through_faults(job, seconds, random.Random(args.seed)),
                train(job, seconds),
            ]
        finally:
            for process in job.processes():
                process.kill()
    quiet, faulty, quiet_again = stretches
    usual = (quiet.rate + quiet_again.rate) / 2
    record("faults-throughput", 100 * faulty.rate / usual)
    kills = sum(kind is Kind.KILL_RANK for kind in faulty.faults)
    print(f"without faults {quiet.rate:.1f} and {quiet_again.rate:.1f} steps/s")
    print(f"with {len(faulty.faults)} faults, {kills} of them kills: {faulty.rate:.1f} steps/s")
    print(f"kept {faulty.rate / usual:.1%} of the steps; none were taken for {faulty.idle / faulty.seconds:.0%} of it")


if __name__ == "__main__":
    main()
