"""A child of the launcher that a fork server has started."""

from __future__ import annotations

import contextlib
import os
import socket


class ForkedProcess:
    """A process that waits to run its command until `release`."""

    def __init__(self, pid: int, conversation: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._conversation = conversation

    def release(self) -> None:
        """Let the process run its command. One that is never released ends by itself."""
        with self._conversation, contextlib.suppress(OSError):  # if it has died, its exit code says so
            self._conversation.sendall(b"\n")

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code, or minus the signal that killed it."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode
