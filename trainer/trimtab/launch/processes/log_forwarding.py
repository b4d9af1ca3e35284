"""Forwards what a worker's processes print to the container's log, and keeps the last lines of each."""

from __future__ import annotations

from collections import deque
from typing import BinaryIO

from trimtab.launch.processes.piped_output import CHUNK_BYTES, PipedOutput
from trimtab.launch.processes.process_logs import NUM_LAST_LINES
from trimtab.launch.processes.process_names import label


class LogForwarder(PipedOutput):
    """The log of a pod: a `ProcessLogs`."""

    def __init__(self, output: BinaryIO, *, named: bool) -> None:
        """``named``: write before each line which process printed it, for where several do."""
        super().__init__()
        self._output = output
        self._named = named
        self._unfinished: dict[str, bytes] = {}
        self._last: dict[str, deque[bytes]] = {}

    def wait(self, seconds: float) -> None:
        """Forward what is printed; returns at once when something was, else after ``seconds``."""
        super().wait(seconds)
        self._output.flush()

    def last_lines(self, name: str) -> list[str]:
        """The last lines that a process printed, whether or not it ended the last of them."""
        lines = [*self._last[name], self._unfinished[name]]
        return [line.decode(errors="replace").rstrip() for line in lines if line.strip()]

    def introduce(self, name: str) -> str:
        """Nothing where the process printed nothing: the container's log has no more of it."""
        return "it last said" if self.last_lines(name) else ""

    def _begin(self, name: str) -> None:
        self._last[name] = deque(maxlen=NUM_LAST_LINES)
        self._unfinished[name] = b""

    def _take(self, name: str, chunk: bytes) -> None:
        *lines, self._unfinished[name] = (self._unfinished[name] + chunk).split(b"\n")
        for line in lines:
            self._write(name, line)
        if len(self._unfinished[name]) > CHUNK_BYTES:  # a line without end is forwarded in pieces
            self._write(name, self._unfinished[name])
            self._unfinished[name] = b""

    def _write(self, name: str, line: bytes) -> None:
        self._last[name].append(line)
        self._output.write((f"[{label(name)}] ".encode() if self._named else b"") + line + b"\n")

    def _end(self, name: str) -> None:
        if self._unfinished[name]:
            self._write(name, self._unfinished[name])
            self._unfinished[name] = b""
