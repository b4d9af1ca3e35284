"""Marks that a rank leaves in the run directory for its launcher.

One tells that a rank has not come to its end, which the exit code of its command may hide: ``python train.py | tee``
succeeds whatever becomes of the script. The other tells that a rank has taken no step yet: a restart that fails before
the first step is told apart from others.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from types import TracebackType

from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab.process.exit_handlers import only_in_this_process
from trimtab.run_files.layout import RunDirectory, best_effort


def mark_unfinished(environment: LaunchEnvironment) -> Callable[[], None]:
    """Leave a mark in the run directory until this process ends well.

    It stays where an exception that nothing catches, or a signal, ends the process.

    Returns:
        Takes the mark away: the session has been closed. Python's exit does so too.
    """
    directory = RunDirectory(environment.run_directory)
    mark = directory.unfinished(f"rank-{environment.rank}")
    before = sys.excepthook
    has_raised = False

    def leave() -> None:
        with best_effort(directory.path):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()

    def raised(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        nonlocal has_raised
        has_raised = True
        only_in_this_process_leave()
        before(kind, error, trace)

    def remove() -> None:
        if not has_raised:
            with best_effort(directory.path):
                mark.unlink(missing_ok=True)

    only_in_this_process_leave = only_in_this_process(leave)
    remove_here = only_in_this_process(remove)
    leave()
    sys.excepthook = raised
    atexit.register(remove_here)
    return remove_here


def mark_first_step(environment: LaunchEnvironment) -> Callable[[], None]:
    """Return a function that takes the launcher's mark away, to be called at this rank's first step."""
    directory = RunDirectory(environment.run_directory)
    mark = directory.before_first_step(f"rank-{environment.rank}")

    def remove() -> None:
        with best_effort(directory.path):
            mark.unlink(missing_ok=True)

    return remove
