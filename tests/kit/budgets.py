"""What each test file may cost in processor seconds, and a check that it does not cost more.

Processor seconds, so that a busy machine fails nobody, divided by how slow this machine's core is. ``budgets.toml`` has
a table for each of the runs that `make test-all` consists of. A file without a row may cost `UNLISTED_SECONDS`.
"""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "budgets.toml"
#: What a file may cost that has no row.
UNLISTED_SECONDS = 20.0
#: A file that costs this many times its budget fails the run that checks budgets.
TOLERANCE = 1.5
#: Of ten million additions in a loop, on the machine that budgets are written for.
REFERENCE_SECONDS = 0.55
_PROPERTY = "processor_seconds"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def relative_slowness() -> float:
    """How many times as long a core of this machine takes as one of the reference machine.

    A second of work: a virtual machine that is held back runs the first fraction of one at full speed.
    """
    begun, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number
    return (time.process_time() - begun) / REFERENCE_SECONDS


def over_budget(spent: Mapping[str, float], budgets: Mapping[str, float]) -> dict[str, float]:
    """Files that cost more than `TOLERANCE` times their budget, and how many times it."""
    shares = {file: seconds / budgets.get(file, UNLISTED_SECONDS) for file, seconds in spent.items()}
    return {file: share for file, share in shares.items() if share > TOLERANCE}


def _spent() -> float:
    """Processor seconds of this process, of children that have ended and of those that still run."""
    times = os.times()
    here = times.user + times.system + times.children_user + times.children_system
    return here + sum(_spent_by(pid) for pid in _children("self"))


def _spent_by(pid: str) -> float:
    """The same of a process that still runs; 0 once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    ticks = sum(map(int, fields[11:15]))  # its own and its ended children's, in user and in system mode
    return ticks / _TICKS_PER_SECOND + sum(map(_spent_by, _children(pid)))


def _children(pid: str) -> list[str]:
    try:
        return [
            child for each in Path(f"/proc/{pid}/task").iterdir() for child in (each / "children").read_text().split()
        ]
    except OSError:
        return []


class Budgets:
    """Measures what each test costs; with ``--check-budgets=TABLE`` fails a run in which a file costs too much."""

    def __init__(self, config: pytest.Config) -> None:
        table = config.getoption("--check-budgets")
        self._budgets: dict[str, float] | None = tomllib.loads(FILE.read_text())[table] if table else None
        self._by_test: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = _spent()
        # A process that has left the descendants takes its seconds along: tests before were charged for them.
        item.user_properties.append((_PROPERTY, lambda: max(0.0, _spent() - before)))
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        if call.when == "teardown":
            measured = [(name, value() if callable(value) else value) for name, value in item.user_properties]
            item.user_properties[:] = measured
        report = yield
        if call.when != "teardown":
            report.user_properties = [each for each in report.user_properties if each[0] != _PROPERTY]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY:
                self._by_test[report.nodeid.partition("@")[0]] += value

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._by_test and not hasattr(session.config, "workerinput"):
            self._slowness = relative_slowness()
            self._too_dear = over_budget(self._by_file(), self._budgets) if self._budgets is not None else {}
            if self._too_dear and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._by_test:
            return
        spent = self._by_file()
        out = session_file(terminalreporter.config)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"slowness": self._slowness, "files": spent, "tests": dict(self._by_test)}, indent=1))
        total = sum(spent.values())
        terminalreporter.write_line(
            f"{total:.0f} processor seconds of the reference machine ({self._slowness:.2f} times as fast as this one's "
            f"core); by test: {out}"
        )
        for file, share in sorted(self._too_dear.items(), key=lambda each: -each[1]):
            terminalreporter.write_line(
                f"{file}: {spent[file]:.0f} processor seconds, {share:.1f} times its budget", red=True
            )
            its = {test: cost for test, cost in self._by_test.items() if test.startswith(f"{file}::")}
            for test, seconds in sorted(its.items(), key=lambda each: -each[1])[:10]:
                terminalreporter.write_line(f"    {seconds / self._slowness:6.1f}  {test.partition('::')[2]}")

    def _by_file(self) -> dict[str, float]:
        spent: dict[str, float] = defaultdict(float)
        for test, seconds in self._by_test.items():
            spent[test.partition("::")[0]] += seconds / self._slowness
        return {file: round(seconds, 2) for file, seconds in spent.items()}


def session_file(config: pytest.Config) -> Path:
    """Where what this run cost is written down, one file for each selection of tests."""
    selection = "".join(each if each.isalnum() else "-" for each in str(config.option.markexpr or "all"))
    return Path(str(config.rootpath)) / "runs" / "test-times" / f"{selection}.json"
