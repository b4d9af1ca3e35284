"""The launcher's side of the fork server, which starts the ranks of all attempts of a run.

The launcher asks for a rank over a socket, and sends the rank's output as a file descriptor. The rank becomes a child
of the launcher: the launcher is a child subreaper, and the server forks twice.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from trimtab.launch.preloading import server
from trimtab.launch.preloading.commands import has_accelerator, python_command
from trimtab.launch.preloading.forked_process import ForkedProcess
from trimtab.launch.processes.children import Children
from trimtab.launch.processes.interrupts import heed
from trimtab.launch.processes.trainer_command import Process
from trimtab.launch.sidecars import open_end
from trimtab.process.messages import LOGGER

#: A user sets this variable to 0 to start each rank as an interpreter of its own.
SWITCH = "TRIMTAB_PRELOAD"
#: Seconds that a rank may take to fork, the server's imports included.
FORK_SECONDS = 120.0
#: Seconds between looks at the server while it imports.
_POLL_SECONDS = 0.02
_NAME = "forkserver"
_PR_SET_CHILD_SUBREAPER = 36


class ForkServer:
    """Holds a process that has imported torch, and forks ranks from it. Leaving the context ends the process."""

    def __init__(self, log: Path) -> None:
        """Start nothing yet; the server is to print to ``log``."""
        self._log = log
        self._ending = ExitStack()
        self._control: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._control = None
        self._ending.close()

    def start(self, process: Process, variables: Mapping[str, str]) -> None:
        """Start the server for ranks like ``process``, if ranks can fork here. Do not wait for its imports.

        Args:
            process: The command, the environment and the directory of a rank.
            variables: What differs from rank to rank in the environment; the server has none of these.
        """
        if os.environ.get(SWITCH) == "0" or has_accelerator() or python_command(process.argv) is None:
            return
        environment = {name: value for name, value in process.environment.items() if name not in variables}
        _become_subreaper(True)
        self._ending.callback(_become_subreaper, False)
        children = self._ending.enter_context(Children())
        self._control, theirs = socket.socketpair()
        self._ending.enter_context(self._control)
        with theirs, open_end(self._log) as log:
            argv = [process.argv[0], server.__file__, str(os.getpid()), *process.argv]
            children.start(_NAME, argv, environment, log.fileno(), process.directory, stdin=theirs.fileno())

    def fork(
        self, process: Process, namespace: Path | None, output: int, wait: Callable[[float], object]
    ) -> ForkedProcess | None:
        """Start one rank; return None if it must start as an interpreter of its own.

        Args:
            process: The rank.
            namespace: File of the network namespace that the rank is to run in; None: the launcher's.
            output: File descriptor that the rank is to print to.
            wait: Waits for so many seconds, and takes what processes print meanwhile.

        Raises:
            Interrupted: A signal came; the rank does not start.
        """
        if self._control is None or python_command(process.argv) is None:
            return None
        conversation, theirs = socket.socketpair()
        try:
            with theirs, ExitStack() as files:
                descriptors = [theirs.fileno(), _request(process, files), output]
                if namespace is not None:
                    descriptors.append(files.enter_context(namespace.open()).fileno())
                socket.send_fds(self._control, [b"+"], descriptors)
            return ForkedProcess(_pid(conversation, wait), conversation)
        except OSError as error:
            conversation.close()
            self._give_up(error)
            return None
        except BaseException:
            conversation.close()
            raise

    def _give_up(self, error: OSError) -> None:
        reason = error.strerror or error
        LOGGER.warning(f"ranks start without the preloaded process ({reason}); see {self._log.name} in the logs")
        self._control = None
        self._ending.close()


def _request(process: Process, files: ExitStack) -> int:
    """Return the file descriptor of a file in memory that says what to run: it may be longer than a socket's buffer."""
    file = files.enter_context(os.fdopen(os.memfd_create("trimtab-rank"), "w"))
    directory = str(process.directory or os.getcwd())
    json.dump({"argv": list(process.argv), "environment": dict(process.environment), "directory": directory}, file)
    file.flush()
    return file.fileno()


def _pid(conversation: socket.socket, wait: Callable[[float], object]) -> int:
    """Wait for the process id of the rank."""
    deadline = time.monotonic() + FORK_SECONDS
    while not select.select([conversation], [], [], 0)[0]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"it has started no rank in {FORK_SECONDS:g} s")
        wait(_POLL_SECONDS)
        heed()
    told = conversation.recv(32)
    if not told:
        raise ConnectionError("it has ended, or could not start a rank")
    return int(told)


def _become_subreaper(on: bool) -> None:
    """Let the launcher be the parent of the ranks that the server forks, or no longer."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
