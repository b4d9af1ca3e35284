"""The files of one run, each named in this one place (``docs/reference/run-directory.md``)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.process.messages import LOGGER
from trimtab.run_files import lock
from trimtab.run_files.line_file import earlier_part

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

    from trimtab.run_files.schema import RunResult

#: Attempts of a run whose files are kept.
_MOST_ATTEMPTS = 20
#: Directories whose records are known to be incomplete, which has been said.
_incomplete: set[Path] = set()


@contextmanager
def best_effort(directory: Path) -> Iterator[None]:
    """Let an `OSError` within, as on a full disk, only make the records in ``directory`` incomplete."""
    try:
        yield
    except OSError as error:
        if directory not in _incomplete:
            _incomplete.add(directory)
            LOGGER.warning(f"the records in {directory} are incomplete ({error.strerror or error}); training goes on")


def is_complete(directory: Path) -> bool:
    """Return whether all that this process wanted to record in ``directory`` was written."""
    return directory not in _incomplete


@dataclass(frozen=True)
class RunDirectory:
    """The directory in which a run keeps what it was given, what it did and how it ended."""

    path: Path

    @property
    def lock(self) -> Path:
        """Locked (flock) by the launcher that uses the directory; holds its process id, and outlives it."""
        return self.path / "lock"

    @property
    def job(self) -> Path:
        """The resolved TrainingJob: JSON, written by the launcher."""
        return self.path / "job.json"

    @property
    def network(self) -> Path:
        """The emulated network, as the user wrote it; absent on loopback."""
        return self.path / "network.yaml"

    @property
    def starting(self) -> Path:
        """The present activity before the first step, in a sentence; written by the launcher, then by rank 0."""
        return self.path / "starting"

    @property
    def started(self) -> Path:
        """Created (empty) by rank 0 when every rank is ready: the launcher then starts the network's schedule."""
        return self.path / "started"

    @property
    def metrics(self) -> Path:
        """One JSON line a step and an evaluation, written by rank 0."""
        return self.path / "metrics.jsonl"

    @property
    def decisions(self) -> Path:
        """One JSON line a decision, and one when it has been measured, written by rank 0."""
        return self.path / "decisions.jsonl"

    @property
    def trace(self) -> Path:
        """One JSON line a profiled step: what went on in it, moment by moment; written by rank 0."""
        return self.path / "trace.jsonl"

    @property
    def phases(self) -> Path:
        """One JSON line a phase of the emulated network, as it came into force, written by the launcher."""
        return self.path / "network.jsonl"

    @property
    def links(self) -> Path:
        """Every link of the network as last measured: JSON, written by the server of the run's status."""
        return self.path / "links.json"

    @property
    def result(self) -> Path:
        """The result of the run, written last by the launcher."""
        return self.path / "result.json"

    @property
    def status_address(self) -> Path:
        """The address of the run's status while it runs (gRPC, `trimtab status`), written by the launcher."""
        return self.path / "status.address"

    @property
    def logs(self) -> Path:
        """A log for every rank and every monitor."""
        return self.path / "logs"

    @property
    def launcher(self) -> Path:
        """Names the torchrun agent that the run belongs to; absent under other launchers."""
        return self.path / "launcher"

    @property
    def attempts(self) -> Path:
        """Logs and lines of earlier attempts, each of which failed and was followed by a restart."""
        return self.path / "attempts"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of a job that asks for a volume claim, on one machine; the next run there goes on from them."""
        return self.path / "checkpoints"

    def unfinished(self, name: str) -> Path:
        """Return the mark that is there while the rank ``name`` trains, and after it where it did not end well."""
        return self.path / "unfinished" / name

    def before_first_step(self, name: str) -> Path:
        """Return the mark that is there from when the rank called ``name`` is started until its first step."""
        return self.path / "before-first-step" / name

    def expect_first_step(self, name: str) -> None:
        """Mark that the rank called ``name`` is started; it takes the mark away at its first step."""
        with best_effort(self.path):
            mark = self.before_first_step(name)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()

    def has_no_step(self, names: Iterable[str]) -> bool:
        """Return whether it is sure that none of these ranks, which were all started, has taken a step."""
        try:
            return all(self.before_first_step(name).exists() for name in names)
        except OSError:
            return False

    def log(self, name: str) -> Path:
        """Return the path of a process's log, as of ``rank-3`` or ``monitor-0``."""
        return self.logs / f"{name}.log"

    def tell_status_address(self, address: str) -> None:
        """Write down where the status is served; a reader finds the whole address, or no file."""
        _write_whole(self.status_address, address)

    def tell_links(self, links: Sequence[Mapping[str, object]]) -> None:
        """Write down all links; they replace what stood there."""
        _write_whole(self.links, json.dumps({"links": list(links)}))

    def tell_starting(self, sentence: str) -> None:
        """Write down what is being done before the first step; it replaces what stood there."""
        _write_whole(self.starting, sentence)

    def read_starting(self) -> str:
        """Return what is being done before the first step; empty where nobody has written it."""
        try:
            return self.starting.read_text().strip()
        except (OSError, ValueError):
            return ""

    def write_job(self, job: TrainingJob) -> None:
        """Write down the resolved job, for this user alone: its commands may hold what is not for others.

        Raises:
            UserError: The directory cannot be written.
        """
        try:
            _write_json(self.job, resolved(job), mode=0o600)
        except OSError as error:
            raise lock.not_writable(self.path, error) from None

    def write_result(self, result: RunResult) -> None:
        """Write down how the run ended; where it ended well, what was of use until then goes."""
        _write_json(self.result, result.to_json())
        if result.is_success:
            self.starting.unlink(missing_ok=True)
            for folder in (self.unfinished(""), self.before_first_step("")):
                with suppress(OSError):  # not there, or a rank that never took a step has its mark in it
                    folder.rmdir()

    def held(self, holder: str = "") -> AbstractContextManager[None]:
        """Return a context within which no other launcher can use the directory; see `trimtab.run_files.lock.hold`."""
        return lock.hold(self.lock, holder)

    def lost_launcher(self) -> str | None:
        """Return the id of the process that held the directory, if it is gone; None while it lives, or is unknown."""
        return lock.lost_holder(self.lock)

    @property
    def is_in_use(self) -> bool:
        """True if a launcher holds the directory now."""
        return lock.is_held(self.lock)

    def prepare(self) -> None:
        """Make the directory, and remove what an earlier run left there; nothing else in it is touched.

        Raises:
            UserError: It cannot be made or written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for folder in (self.logs, self.attempts, self.unfinished("")):
                shutil.rmtree(folder, ignore_errors=True)
            self.logs.mkdir()
        except OSError as error:
            raise lock.not_writable(self.path, error) from None
        whole_run = (self.job, self.network, self.result, self.status_address, self.launcher)
        for file in (*whole_run, *self._of_an_attempt):
            file.unlink(missing_ok=True)

    def prepare_attempt(self, launcher: str) -> int:
        """Prepare for a run, or for a further attempt of the run that this ``launcher`` began.

        Args:
            launcher: Names the launcher of all attempts; empty where that is not known, and so each is a run.

        Returns:
            The number of attempts that went before, whose files are in `attempts`.

        Raises:
            UserError: The directory cannot be made or written.
        """
        if launcher and self._launcher_before() == launcher:
            try:
                numbers = sorted(int(each.name) for each in self.attempts.glob("[0-9]*"))
                number = numbers[-1] + 1 if numbers else 0
                self.set_aside(number)
            except OSError as error:
                raise lock.not_writable(self.path, error) from None
            for old in numbers[: 1 - _MOST_ATTEMPTS]:
                shutil.rmtree(self.attempts / str(old), ignore_errors=True)
            return number + 1
        self.prepare()
        if launcher:
            with best_effort(self.path):
                self.launcher.write_text(launcher)
        return 0

    def _launcher_before(self) -> str:
        try:
            return self.launcher.read_text()
        except (OSError, ValueError):
            return ""

    def set_aside(self, attempt: int) -> RunDirectory:
        """Move what a failed attempt wrote into `attempts`, before the next begins; returns where it is now."""
        aside = RunDirectory(self.attempts / str(attempt))
        aside.path.mkdir(parents=True)
        for each in (self.logs, self.result, *self._of_an_attempt):
            if each.exists():
                each.rename(aside.path / each.name)
        self.logs.mkdir(exist_ok=True)
        return aside

    @property
    def _of_an_attempt(self) -> tuple[Path, ...]:
        """The files that every attempt writes anew."""
        lines = (self.metrics, self.decisions, self.trace)
        return (self.starting, self.started, *lines, *map(earlier_part, lines), self.phases, self.links)


def resolved(job: TrainingJob) -> dict[str, Any]:
    """Return the job as ``job.json`` holds it: plain data, with defaults filled in."""
    return job.model_dump(mode="json", by_alias=True, exclude_none=True)


def _write_json(file: Path, data: dict[str, Any], mode: int = 0o666) -> None:
    _write_whole(file, json.dumps(data, indent=2), mode)


def _write_whole(file: Path, line: str, mode: int = 0o666) -> None:
    """Replace the file in one go: a reader finds the old line or the new one, never a part of either."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        unfinished.unlink(missing_ok=True)  # of a launcher that was killed, with a mode of its own
        with open(unfinished, "w", opener=lambda path, flags: os.open(path, flags, mode)) as opened:
            opened.write(f"{line}\n")
        unfinished.replace(file)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
