"""One soak: a job that trains, faults that happen to it, and what must hold after each."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import psutil
from soak.fault_plan import HARMLESS, RESTARTING, SAVED_BEFORE, Fault, Kind, draw_family, plan_faults
from soak.make_fault import LeftBehindError, applied, clock_environment, volume, wait_for_end
from soak.soak_report import Outcome, SoakReport
from soak.soaked_job import SoakedJob

#: Seconds after a fault's end within which each rank must have taken a step. Other work may share the machine.
RESUME_SECONDS = 300.0
#: Seconds for the first step of all, which may compile kernels.
FIRST_STEP_SECONDS = 600.0
#: Steps beyond the newest at which all ranks stop: each sees the file before.
_STEPS_TO_STOP = 200
_LOOK_SECONDS = 0.02
#: What a user must be able to read after a fault, of those that leave a trace.
_CAUSES = {
    Kind.KILL_RANK: r"restart \d+ .*: rank {target} ended with signal SIGKILL",
    Kind.TERMINATE_RANK: r"restart \d+ .*: rank \d ended with signal SIGTERM",
    Kind.STOP_RANK_LONG: r"restart \d+ .*(?s:.*)rank {target}\b.*20 s",
    Kind.PARTITION_LONG: r"restart \d+ .*(?s:.*)rank \d\b.*20 s",
    Kind.KILL_MONITOR: r"SIGKILL",
    Kind.FULL_DISK: r"checkpoint of step \d+: .*No space left on device.*; training goes on",
    Kind.UNWRITABLE: r"checkpoint of step \d+: .*Read-only file system.*; training goes on",
    Kind.TERMINATE_RUN: r"interrupted; nothing is left running",
}


class Soak:
    """Makes the faults of one seed happen, one after the other."""

    def __init__(self, job: SoakedJob, report: SoakReport, say: Callable[[str], None]) -> None:
        self.job, self.report, self._say = job, report, say

    def train_through(self, faults: list[Fault], seconds: float) -> None:
        """Start the job, make the faults happen for at most so many seconds from its first step, and stop the job."""
        began = time.monotonic()
        self.job.start()
        if not self._until_stepped(began, None, FIRST_STEP_SECONDS):
            self.report.problems.append(f"no step within {FIRST_STEP_SECONDS:g} s: {self._last_words()}")
            return
        self.report.notes.append(f"first step after {time.monotonic() - began:.1f} s")
        deadline = time.monotonic() + seconds
        for number, fault in enumerate(faults):
            if time.monotonic() > deadline:
                self.report.notes.append(f"out of time: {len(faults) - number} faults of the plan did not happen")
                break
            self._train_for(fault.gap)
            outcome = self._outcome(fault)
            self.report.outcomes.append(outcome)
            held = "; ".join(outcome.problems) or "held"
            self._say(f"{number + 1}/{len(faults)} {fault.kind.value}: {outcome.seconds:.1f} s, {held}")
            if self.job.launcher.poll() is not None:
                break
        self._stop()

    def _outcome(self, fault: Fault) -> Outcome:
        job, before = self.job, self.job.texts()
        problems, known = list[str](), len(job.invariants.problems)
        attempt, last_step = self._now()
        began = time.monotonic()
        try:
            with applied(fault, job):
                self._train_for(fault.seconds)
                if fault.kind in HARMLESS and fault.seconds and not job.all_ranks_stepped_since(began):
                    problems.append("training stood still meanwhile")
        except (LeftBehindError, LookupError, OSError, psutil.Error) as error:
            problems.append(f"{type(error).__name__}: {error}")
        ended = time.monotonic() if fault.kind not in RESTARTING or fault.seconds else began
        other_than = attempt if fault.kind in RESTARTING else None
        if not self._until_stepped(ended, other_than, RESUME_SECONDS):
            problems.append(f"no step within {RESUME_SECONDS:g} s: {self._last_words()}")
        elif fault.kind in SAVED_BEFORE:
            problems += self._steps_lost(last_step)
        resumed = max(line["time"] for line in job.last_steps.values())
        problems += self._unread_cause(fault, before)
        problems += job.invariants.problems[known:]
        return Outcome(fault, max(0.0, min(resumed, time.monotonic()) - ended), tuple(problems))

    def _now(self) -> tuple[int, int]:
        """Return the present attempt, and its newest step."""
        self.job.read_records()
        newest = max(self.job.last_steps.values(), key=lambda line: line["time"])
        return newest["attempt"], newest["step"]

    def _steps_lost(self, last_step: int) -> list[str]:
        attempt, _ = self._now()
        first = self.job.first_step_of(attempt)
        return (
            [] if first > last_step else [f"step {first} was trained again, and {last_step} was taken before SIGTERM"]
        )

    def _train_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.job.read_records()
            time.sleep(_LOOK_SECONDS)

    def _until_stepped(self, moment: float, other_than: int | None, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self.job.all_ranks_stepped_since(moment, other_than):
            if time.monotonic() > deadline or self.job.launcher.poll() is not None:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _unread_cause(self, fault: Fault, before: dict[Path, int]) -> list[str]:
        """Return what is wrong with the text by which a user is to know what happened."""
        if fault.kind not in _CAUSES:
            return []
        wanted = _CAUSES[fault.kind].format(**asdict(fault))
        deadline = time.monotonic() + 5.0
        while not re.search(wanted, said := self.job.said_since(before)):
            if time.monotonic() > deadline:
                return [f"nothing says {wanted!r}; the last words: {said[-400:]!r}"]
            time.sleep(0.1)
        return []

    def _last_words(self) -> str:
        return self.job.output.read_text(errors="replace")[-600:]

    def _stop(self) -> None:
        """Have all ranks stop at the same step, and look what is left."""
        job, problems = self.job, self.report.problems
        _, step = self._now()
        partial = job.folder / "stop.partial"
        partial.write_text(str(step + _STEPS_TO_STOP))
        partial.rename(job.folder / "stop")
        try:
            code = job.launcher.wait(RESUME_SECONDS)
            wait_for_end(job)
        except Exception as error:
            problems.append(f"the job did not end: {error}")
        else:
            if code != 0:
                problems.append(f"the job ended with {code}: {self._last_words()}")
        # torch makes a folder for what it compiles, and keeps it.
        left = [path.name for path in (job.folder / "t").iterdir() if not path.name.startswith("torchinductor")]
        problems += [f"left behind: {name}" for name in left]
        problems += self._wrong_checkpoints()
        job.read_records()
        held = job.invariants
        self.report.notes.append(
            f"{held.num_weights} checksums of weights and {held.num_sums} sums of gradients compared;"
            f" largest relative error {held.largest_error:.1e}"
        )
        if not held.num_sums:
            problems.append("no sum of gradients was compared")
        problems += [text for text in held.problems if text not in self._told()]

    def _told(self) -> set[str]:
        return {problem for outcome in self.report.outcomes for problem in outcome.problems}

    def _wrong_checkpoints(self) -> list[str]:
        whole = sorted(path.parent.name for path in self.job.checkpoints.glob("*/manifest.json"))
        if not whole:
            return ["there is no checkpoint"]
        found = [path.name for path in self.job.checkpoints.iterdir()]
        # One that is newer than the newest whole one was under way when its ranks ended.
        stale = [name for name in found if name not in whole and name[:17] <= whole[-1][:17]]
        too_many = [f"{len(whole)} checkpoints are kept"] if len(whole) > 2 else []
        return [*too_many, *(f"left among the checkpoints: {name}" for name in stale)]


def soak(
    folder: Path, seed: int, minutes: float, say: Callable[[str], None] = print, plan: str | None = None
) -> SoakReport:
    """Run one soak in ``folder``, which is made; return what it found.

    Args:
        folder: For all its files.
        seed: Draws the faults, and the plan where none is named.
        minutes: As long as the faults should take together; after half as many more the rest is left out.
        say: Takes a line after each fault.
        plan: The plan to train by; ``adaptive`` is one.
    """
    folder.mkdir(parents=True)
    report = SoakReport(seed, plan or draw_family(seed))
    faults = plan_faults(seed, minutes)
    job = SoakedJob(folder, report.plan, clock_environment(folder))
    with volume(job.checkpoints):
        try:
            Soak(job, report, say).train_through(faults, minutes * 90.0)
        finally:
            for process in job.processes():
                process.kill()
    return report
