"""Comparisons: runs of one job under several plans, or runs that somebody names side by side.

The file ``comparison.json`` says which plans they are.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trimtab_api.errors import UserError

from trimtab.report.colors import Style, styles_in_turn, styles_of_plans
from trimtab.report.summary import Summary, summarise
from trimtab.run_files.json_files import Count, Record, read_file
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.reader import Run, read_run
from trimtab.run_files.schema import Target


class ComparisonRequest(Record, frozen=True):
    """What a comparison was asked for: ``comparison.json``."""

    command: list[str]
    plans: list[str]
    target: Target | None
    repeat: Count = 1
    """How often each plan runs."""


@dataclass(frozen=True)
class Comparison:
    """The runs that a report shows: those of a comparison, the one of a run directory, or several of these."""

    directory: Path
    """The folder of its files."""
    runs: list[Run]
    """One for each plan, in the order asked for; where a plan ran several times, its median run."""
    target: Target | None
    command: list[str]
    """The command line that made them; empty for a single run."""
    times: dict[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Seconds to the target of each plan's runs, in order, by its name; empty where each plan ran once."""
    are_plans: bool = True
    """True if runs are named by their plans; else by their directories, and nothing follows from their names."""

    @property
    def summaries(self) -> dict[str, Summary]:
        """Each run in numbers, by plan name."""
        return {
            run.name: replace(summarise(run, self.target), all_seconds_to_target=self.times.get(run.name, ()))
            for run in self.runs
        }

    @property
    def styles(self) -> dict[str, Style]:
        """The look of each run, by its name."""
        names = [run.name for run in self.runs]
        return styles_of_plans(names) if self.are_plans else styles_in_turn(names)

    @property
    def featured(self) -> Run:
        """The run whose decisions the report shows: the adaptive one, or else the first."""
        return next((run for run in self.runs if "adaptive" in (run.name, run.result.plan)), self.runs[0])


def run_directory(directory: Path, plan: str, turn: int = 0) -> RunDirectory:
    """Return where a comparison keeps the run of one plan, or its ``turn``-th repetition."""
    return RunDirectory(directory / (plan.replace("/", "-") + (f".{turn + 1}" if turn else "")))


def write_comparison(
    directory: Path, command: list[str], plans: list[str], target: Target | None, repeat: int = 1
) -> None:
    """Write down what was asked for, in ``comparison.json``."""
    request = ComparisonRequest(command, plans, target, repeat)
    (directory / "comparison.json").write_text(json.dumps(request.to_json(), indent=2) + "\n")


def middle(runs: Sequence[Run], target: Target | None) -> Run:
    """Return the median run by time to the target, or by total time without one; the slower of two in the middle."""

    def slowness(run: Run) -> float:
        if target is None:
            return run.seconds
        reached = summarise(run, target).seconds_to_target
        return math.inf if reached is None else reached

    return sorted(runs, key=slowness)[len(runs) // 2]


def finished_runs(directory: Path, plan: str, repeat: int) -> list[Run]:
    """Return the runs of one plan that have finished, in order. Raise `UserError` where one is damaged."""
    directories = [run_directory(directory, plan, turn) for turn in range(repeat)]
    return [read_run(each) for each in directories if os.path.exists(each.result)]


def read_comparison(directory: Path) -> Comparison:
    """Read the finished runs under a comparison's directory, or the one run of a run directory.

    Raises:
        UserError: There is neither.
    """
    _expect_directory(directory)
    file = directory / "comparison.json"
    try:
        request = read_file(ComparisonRequest, file)
    except FileNotFoundError:
        return _single_run(directory)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}); check the path", file=str(file)) from None
    runs, times = [], {}
    for plan in request.plans:
        finished = finished_runs(directory, plan, request.repeat)
        if finished:
            runs.append(middle(finished, request.target))
        if request.repeat > 1:
            times[plan] = tuple(summarise(run, request.target).seconds_to_target for run in finished)
    if not runs:
        raise UserError("no run of this comparison has finished; run it again", file=str(directory))
    return Comparison(directory, runs, request.target, request.command, times)


def side_by_side(directories: Sequence[Path], out: Path) -> Comparison:
    """Read finished runs from directories of their own, whose report goes to ``out``.

    They are named by their plans where no plan comes twice, else by their directories. The target is theirs where they
    share it.

    Raises:
        UserError: One of them is no finished run, or comes twice.
    """
    for directory in directories:
        _expect_directory(directory)
        if (directory / "comparison.json").exists():
            raise UserError(
                "is the directory of a comparison, not of a run; name a run inside it, such as its"
                " subdirectory adaptive",
                file=str(directory),
            )
    found = [_single_run(directory) for directory in directories]
    runs, targets = [each.runs[0] for each in found], [each.target for each in found]
    are_plans = len({run.name for run in runs}) == len(runs)
    if not are_plans:
        by_name = len({directory.name for directory in directories}) == len(directories)
        names = [directory.name if by_name else str(directory) for directory in directories]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UserError("comes twice; name each run once", field="DIRECTORY", value=twice)
        runs = [replace(run, name=name) for run, name in zip(runs, names, strict=True)]
    shared = targets[0] if all(each == targets[0] for each in targets) else None
    return Comparison(out, runs, shared, [], are_plans=are_plans)


def _expect_directory(directory: Path) -> None:
    if not os.path.isdir(directory):
        trouble = "is a file" if os.path.exists(directory) else "no such directory"
        raise UserError(
            f"{trouble}; name a directory that `trimtab run` or `trimtab compare` wrote", file=str(directory)
        )


def _single_run(directory: Path) -> Comparison:
    if not RunDirectory(directory).result.exists():
        raise UserError(
            "holds neither comparison.json nor result.json: no run has finished here; name a directory where one has",
            file=str(directory),
        )
    run = read_run(RunDirectory(directory))
    return Comparison(directory, [run], run.job.spec.target, [])
