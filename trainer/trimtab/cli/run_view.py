"""The state of a run by its files so far: as facts for a line or a panel, and as figures for JSON."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text
from trimtab_api.units import format_bandwidth, format_duration

from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.line_file import Tail
from trimtab.run_files.schema import DecisionLine, NetworkNote, Target, decision_kind
from trimtab.run_files.steps import ALONE, DroppedSteps, Evaluation, LeftOutSteps, Step, metric_kind

#: Steps that the strips of a panel show.
NUM_SHOWN = 56
#: Steps that step time and waiting are the means of.
NUM_RECENT = 20
#: Columns of a name and what parts it from its value.
_NAME_WIDTH = 12
_BARS = "▁▂▃▄▅▆▇█"


class RunView:
    """The state of a run by its files so far."""

    def __init__(self, plan: str, directory: RunDirectory) -> None:
        self.plan = plan
        self.directory = directory
        self._metrics = Tail(directory.metrics)
        self._decisions = Tail(directory.decisions)
        self._begun = time.monotonic()
        self._step: Step | None = None
        self._evaluations: list[Evaluation] = []
        self._reason = ""
        self._network_problem = ""
        self._dropped = DroppedSteps()
        self._gain: float | None = None
        self._shown: deque[Step] = deque(maxlen=NUM_SHOWN)

    def read(self) -> None:
        """Take in what the files have gained."""
        for line in self._metrics.new_records(metric_kind):
            if isinstance(line, Evaluation):
                self._evaluations.append(line)
            elif isinstance(line, LeftOutSteps):
                self._dropped.add_left_out(line)
            elif isinstance(line, Step):
                self._step = line
                self._dropped.add(line)
                self._gain = self._gain if line.gain is None else line.gain
                self._shown.append(line)
        for told in self._decisions.new_records(decision_kind):
            if isinstance(told, DecisionLine):
                self._reason = told.reason
            elif isinstance(told, NetworkNote):
                self._network_problem = told.problem

    def has_reached(self, target: Target | None) -> bool:
        """Return whether any evaluation so far has reached the target."""
        return target is not None and any(target.reached_by(each.values) for each in self._evaluations)

    @property
    def seconds(self) -> float:
        """Seconds from the start of the schedule to the last step that the run told of."""
        return 0.0 if self._step is None else self._step.time

    def facts(self) -> dict[str, str]:
        """Return what is known of the run, by name, in the order shown."""
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
        recent = self._recent(step)
        seconds = sum(each.step_seconds for each in recent)
        facts["step time"] = format_duration(seconds / len(recent))
        if step.plan != ALONE:
            waiting = 1 - sum(each.compute_seconds for each in recent) / seconds if seconds else 0.0
            facts["waiting"] = f"{waiting:.0%} of it"
        if step.latency is not None:
            facts["latency"] = format_duration(step.latency)
        if step.bandwidth is not None:
            facts["bandwidth"] = format_bandwidth(step.bandwidth) + (" (stale)" if step.network_is_stale else "")
        if self._gain is not None:
            facts["gain"] = f"{self._gain:.2f}"
        if self._dropped.num:
            facts["dropped"] = str(self._dropped)
        if self._network_problem:
            facts["network"] = f"NOT MEASURED: {self._network_problem}"
        facts["plan"] = step.plan
        return facts

    def _recent(self, last: Step) -> list[Step]:
        """Return the last steps like this one: a local step tells nothing of the others in its round."""
        alike = (last.plan_version, last.trial)
        return [each for each in self._shown if (each.plan_version, each.trial) == alike][-NUM_RECENT:]

    def figures(self) -> dict[str, object]:
        """Return what is known of the run in base units, as JSON has it; what is not known is null."""
        step = self._step
        if step is None:
            return {"state": "starting", "message": self.directory.read_starting()}
        return {
            "state": "running",
            "step": step.step,
            "in_trial": step.trial,
            "loss": step.loss,
            "evaluation": self._evaluations[-1].values if self._evaluations else {},
            "step_seconds": step.step_seconds,
            "exposed_seconds": step.step_seconds - step.compute_seconds,
            "latency_seconds": step.latency,
            "bandwidth_bytes_per_second": step.bandwidth,
            "network_is_stale": bool(step.network_is_stale),
            "network_problem": self._network_problem,
            "dropped_steps": self._dropped.num,
            "dropped_by": self._dropped.by,
            "gain": self._gain,
            "plan": step.plan,
            "plan_version": step.plan_version,
            "reason": self._reason,
        }

    def line(self) -> str:
        """Return one line for a log."""
        return f"{self.plan}: " + "  ".join(f"{name} {value}" for name, value in self.facts().items())

    def render(self) -> RenderableType:
        """Draw the inside of the panel."""
        if self._step is None:
            return Text("  ".join(self.facts().values()))
        grid = Table.grid(padding=(0, 2))
        for width in (10, 26, 10, 26):
            grid.add_column(no_wrap=True, min_width=width)
        facts = self.facts()
        plan = facts.pop("plan")  # its name may take a line and more
        problems = {name: facts.pop(name) for name in ("dropped", "network") if name in facts}
        cells = [
            Text(text, style=style) for pair in facts.items() for text, style in zip(pair, ("dim", "bold"), strict=True)
        ]
        for start in range(0, len(cells), 4):
            grid.add_row(*cells[start : start + 4])
        of_plan = Table.grid(padding=(0, 2))
        of_plan.add_column(no_wrap=True, min_width=10)
        of_plan.add_column(overflow="fold")
        of_plan.add_row(Text("plan", style="dim"), Text(plan, style="bold"))
        for name, problem in problems.items():
            of_plan.add_row(Text(name, style="dim"), Text(problem, style="bold red"))
        parts: list[RenderableType] = [grid, of_plan]
        if len(self._shown) > 1:
            parts.append(_Strips(list(self._shown)))
        if self._reason:
            parts.append(Text(self._reason, style="italic"))
        return Group(*parts)


class _Strips:
    """The last steps, one column each, as many as fit: the network above, changes of the plan, and step times."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        steps = self._steps[-max(1, options.max_width - _NAME_WIDTH) :]
        strips = {"step time": (sparkline([each.step_seconds for each in steps]), "cyan")}
        if steps[-1].plan != ALONE:
            versions = [each.plan_version for each in steps]
            changes = "".join("─" if now == before else "◆" for before, now in itertools.pairwise(versions))
            strips = {"changes": ("─" + changes, "magenta"), **strips}
        if any(each.bandwidth for each in steps):
            strips = {"bandwidth": (sparkline([each.bandwidth or 0.0 for each in steps]), "green"), **strips}
        for name, strip in strips.items():
            yield Text.assemble((name.ljust(_NAME_WIDTH), "dim"), strip, no_wrap=True, overflow="crop")


def sparkline(values: list[float]) -> str:
    """Draw the values as bars, from zero to the largest."""
    top = max(values) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(value / top * len(_BARS)))] for value in values)
