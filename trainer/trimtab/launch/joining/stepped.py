"""Tells a pod's launcher that a rank has taken a step: a restart that fails before one is told apart from others."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab.run_files.best_effort import best_effort
from trimtab.run_files.layout import RunDirectory


def mark_first_step(environment: LaunchEnvironment) -> Callable[[], None]:
    """What takes the launcher's mark away, to be called at the first step of this rank."""
    directory = RunDirectory(environment.run_directory)
    mark = directory.before_first_step(f"rank-{environment.rank}")

    def remove() -> None:
        with best_effort(directory.path):
            mark.unlink(missing_ok=True)

    return remove
