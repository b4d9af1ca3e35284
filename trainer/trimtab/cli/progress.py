"""Progress of a run: a live panel on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from trimtab_api.units import format_bandwidth, format_duration

from trimtab.cli.log_tail import LogTail
from trimtab.records.json_files import Tail, read_record
from trimtab.records.lines import Evaluation, Step
from trimtab.records.run_directory import RunDirectory
from trimtab.report.summary import Target

#: Seconds between lines where there is no terminal.
LINE_SECONDS = 5.0
_BARS = "▁▂▃▄▅▆▇█"


class Progress:
    """Follows the files of runs, one after another. It has no thread: `update` reads and draws."""

    def __init__(
        self,
        num_runs: int,
        until: Target | None = None,
        console: Console | None = None,
        tail: int | None = None,
    ) -> None:
        """``until`` ends a run that reaches it; ``tail`` is the rank whose script's output is shown as well."""
        self._console = console or Console()
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
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def start(self, plan: str, directory: RunDirectory) -> None:
        """Follow another run from its beginning."""
        self._num_started += 1
        self._view = RunView(plan, directory)
        self._log = None if self._tail is None else LogTail(directory, self._tail)
        self._last_line = time.monotonic()

    def restart(self, message: str) -> None:
        """Say why all ranks start again, and follow the run from its beginning."""
        self.finish(message)
        self._view = RunView(self._view.plan, self._view.directory)

    def update(self) -> bool:
        """Read and show what is new; returns whether the run has reached the target that ends it."""
        self._view.read()
        if self._log is not None:
            self._show(self._log.new_lines())
        if self._live:
            self._live.update(self._panel(), refresh=True)
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._console.print(self._view.line(), highlight=False, soft_wrap=True)
        return self._view.has_reached(self._until)

    def end(self) -> None:
        """The run has ended: show what its script printed last."""
        if self._log is not None:
            self._show(self._log.rest())

    def _show(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def finish(self, text: str) -> None:
        """Show the end of one run and keep it on the screen."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _panel(self) -> RenderableType:
        number = f"  run {self._num_started} of {self._num_runs}" if self._num_runs > 1 else ""
        title = Text.assemble((self._view.plan, "bold"), number)
        return Panel(self._view.render(), title=title, title_align="left", border_style="cyan", width=88)


class RunView:
    """What the files of one run have told so far."""

    def __init__(self, plan: str, directory: RunDirectory) -> None:
        self.plan = plan
        self.directory = directory
        self._metrics = Tail(directory.metrics)
        self._decisions = Tail(directory.decisions)
        self._begun = time.monotonic()
        self._step: Step | None = None
        self._evaluations: list[Evaluation] = []
        self._reason = ""
        self._step_seconds: deque[float] = deque(maxlen=48)

    def read(self) -> None:
        """Take in what the files have gained."""
        for line in self._metrics.new_lines():
            if line.get("event") == "evaluation":
                self._evaluations.append(read_record(Evaluation.from_json, line, self.directory.metrics))
            elif "event" not in line:
                self._step = read_record(Step.from_json, line, self.directory.metrics)
                self._step_seconds.append(self._step.step_seconds)
        for line in self._decisions.new_lines():
            self._reason = line.get("reason", self._reason)

    def has_reached(self, target: Target | None) -> bool:
        """Whether any evaluation so far has reached the target."""
        return target is not None and any(target.reached_by(each.values) for each in self._evaluations)

    def facts(self) -> dict[str, str]:
        """What is known of the run, by name, in the order shown."""
        step = self._step
        facts = {"elapsed": f"{time.monotonic() - self._begun:.0f} s"}
        if step is None:
            doing = self.directory.read_starting()
            return facts | {"state": "starting" + (f": {doing}" if doing else "")}
        facts["step"] = f"{step.step}" + (" (trial)" if step.trial else "")
        if step.loss is not None:
            facts["loss"] = f"{step.loss:.4f}"
        if self._evaluations and "accuracy" in self._evaluations[-1].values:
            facts["accuracy"] = f"{self._evaluations[-1].values['accuracy']:.2%}"
        facts["step time"] = format_duration(step.step_seconds)
        if step.latency is not None:
            facts["latency"] = format_duration(step.latency)
        if step.bandwidth is not None:
            facts["bandwidth"] = format_bandwidth(step.bandwidth) + (" (stale)" if step.network_is_stale else "")
        facts["plan"] = step.plan
        return facts

    def line(self) -> str:
        """One line for a log."""
        return f"{self.plan}: " + "  ".join(f"{name} {value}" for name, value in self.facts().items())

    def render(self) -> RenderableType:
        """The inside of the panel."""
        if self._step is None:
            return Text("  ".join(self.facts().values()))
        grid = Table.grid(padding=(0, 2))
        for width in (10, 26, 10, 26):
            grid.add_column(no_wrap=True, min_width=width)
        cells = [
            Text(text, style=style)
            for pair in self.facts().items()
            for text, style in zip(pair, ("dim", "bold"), strict=True)
        ]
        for start in range(0, len(cells), 4):
            grid.add_row(*cells[start : start + 4])
        parts: list[RenderableType] = [grid]
        if len(self._step_seconds) > 1:
            parts.append(Text.assemble(("step times ", "dim"), (sparkline(list(self._step_seconds)), "cyan")))
        if self._reason:
            parts.append(Text(self._reason, style="italic"))
        return Group(*parts)


def sparkline(values: list[float]) -> str:
    """The values as bars, from zero to the largest."""
    top = max(values) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(value / top * len(_BARS)))] for value in values)
