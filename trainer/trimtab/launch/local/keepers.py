"""The processes that keep a local run's checkpoints in memory: they outlive its attempts, and end with the run."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from trimtab.launch.processes.children import Children
from trimtab.launch.sidecars import open_end
from trimtab.run_files.layout import RunDirectory

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob


class LocalKeepers:
    """One process for each worker, behind a Unix socket, which every network namespace of this machine reaches."""

    def __init__(self, job: TrainingJob, directory: RunDirectory) -> None:
        """Start nothing yet; none is started for a job that asks for no copies in memory."""
        self._checkpoint, self._num_workers, self._directory = job.spec.checkpoint, job.spec.workers, directory
        self._ending = ExitStack()
        self._children: Children | None = None
        self.addresses: tuple[str, ...] = ()
        """By worker."""

    def __enter__(self) -> Self:
        if self._checkpoint is not None and self._checkpoint.in_memory is not None:
            self._children = self._ending.enter_context(Children())
            sockets = self._children.temporary_directory("trimtab-")  # the run directory's path may be too long
            self.addresses = tuple(f"unix:{sockets}/keeper-{worker}" for worker in range(self._num_workers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def start_missing(self) -> None:
        """Start the keepers that do not run; one that has ended begins empty."""
        if self._children is None or self._checkpoint is None:
            return
        self._children.collect()
        for worker, address in enumerate(self.addresses):
            name = f"keeper-{worker}"
            if name in self._children.running:
                continue
            argv = [sys.executable, "-m", "trimtab", "keeper", "--listen", address]
            argv += ["--bytes", f"{self._checkpoint.in_memory_bytes}B"]
            with open_end(self._directory.log(name)) as log:
                self._children.start(name, argv, os.environ, log.fileno())
