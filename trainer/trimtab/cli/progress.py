"""Progress of a run: a live panel on a terminal, a line every few seconds elsewhere, or JSON lines."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from math import inf
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text
from trimtab_api.units import format_duration

from trimtab.cli.log_tail import LogTail
from trimtab.cli.run_view import RunView
from trimtab.launch.processes.supervisor import Ending
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.schema import Target

#: Seconds between lines where there is no terminal.
LINE_SECONDS = 5.0


class Progress:
    """Follows the files of runs, one after another. It has no thread: `update` reads and draws."""

    def __init__(
        self,
        num_runs: int,
        until: Target | None = None,
        console: Console | None = None,
        tail: int | None = None,
        as_json: bool = False,
    ) -> None:
        """Show nothing yet; ``until`` ends a run that reaches it, ``tail`` is the rank whose script's output is shown.

        With ``as_json`` each line is an object, whose ``event`` is ``progress``, ``output`` (of the script) or
        ``message``.
        """
        self._console = console or Console()
        self._as_json = as_json
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if self._is_live else None
        self._num_runs = num_runs
        self._until = until
        self._tail = tail
        self._log: LogTail | None = None
        self._num_started = 0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    @property
    def _is_live(self) -> bool:
        return self._console.is_terminal and not self._console.is_dumb_terminal and not self._as_json

    def start(self, plan: str, directory: RunDirectory, limit_seconds: float = inf) -> None:
        """Follow another run from its beginning; one that trains for longer than the limit is to be given up."""
        self._num_started += 1
        self._limit_seconds = limit_seconds
        self._view = RunView(plan, directory)
        self._log = None if self._tail is None else LogTail(directory, self._tail)
        self._last_line = time.monotonic()

    def restart(self, message: str) -> None:
        """Say why all ranks start again, and follow the run from its beginning."""
        self.finish(message)
        self._view = RunView(self._view.plan, self._view.directory)

    def update(self) -> Ending | None:
        """Read and show what is new; returns how the run ends, where it has reached its target or its limit."""
        self._view.read()
        if self._log is not None:
            self._show(self._log.new_lines())
        if self._live:
            self._live.update(self._panel(), refresh=True)
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._print("progress", self._view.line(), **self._view.figures())
        if self._view.has_reached(self._until):
            return Ending("target")
        if self._view.seconds > self._limit_seconds:
            return Ending("deadline", f"given up when it had trained for {format_duration(self._limit_seconds)}")
        return None

    def end(self) -> None:
        """Note that the run has ended: show what its script printed last."""
        if self._log is not None:
            self._show(self._log.rest())

    def _show(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._print("output", line, rank=self._tail, line=line)

    def finish(self, text: str) -> None:
        """Show the end of one run and keep it on the screen."""
        self._print("message", text, message=text)

    def _print(self, event: str, text: str, **fields: object) -> None:
        """Print a line of text, or the same as an object."""
        line = json.dumps({"event": event, "unix_seconds": time.time(), **fields}) if self._as_json else text
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _panel(self) -> RenderableType:
        number = f"  run {self._num_started} of {self._num_runs}" if self._num_runs > 1 else ""
        title = Text.assemble((self._view.plan, "bold"), number)
        return Panel(self._view.render(), title=title, title_align="left", border_style="cyan", width=88)
