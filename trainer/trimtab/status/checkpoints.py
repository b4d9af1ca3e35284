"""Checkpoints of a run, as its files tell of them: the last whole one, and why the last one failed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimtab.run_files.layout import RunDirectory
    from trimtab.run_files.steps import WrittenCheckpoint


class Checkpoints:
    """The checkpoints that an attempt has written so far."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self.num, self.num_failed, self.pause_seconds = 0, 0, 0.0
        self.last: WrittenCheckpoint | None = None
        """The last whole one."""
        self.last_at = 0.0
        """When it was whole: seconds since the Unix epoch."""
        self._problems: dict[bool, str] = {}
        """Why the last one could not be written, by whether it was for memory."""

    @property
    def problem(self) -> str:
        """Why the last one, of the store or of memory, could not be written; empty where each was."""
        return "; ".join(self._problems[in_memory] for in_memory in sorted(self._problems))

    def add(self, written: WrittenCheckpoint) -> None:
        """Count a checkpoint whose write has ended."""
        self.pause_seconds += written.pause_seconds
        if written.problem:
            self.num_failed += 1
            where = " to memory" if written.in_memory else ""
            problem = f"the checkpoint of step {written.step} could not be written{where}: {written.problem}"
            self._problems[written.in_memory] = problem
            return
        self._problems.pop(written.in_memory, None)
        self.num, self.last = self.num + 1, written
        self.last_at = min(time.time(), self._began_at() + written.time)

    def _began_at(self) -> float:
        """Return when training began, from which the lines of the files count their time."""
        try:
            return self._directory.started.stat().st_mtime
        except OSError:  # no record of it: a line is read within seconds after it was written
            return time.time()
