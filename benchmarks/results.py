"""Writes the figures of benchmarks as JSON, and reads the newest figure of each promise.

A run becomes ``benchmarks/results/DATE/NAME-TIME.json``: the command, date, commit and machine, one entry for each
promise that the benchmark measured, and the lines that it printed. ``promises.toml`` has the promises and their
targets. `scripts/generate` turns both into ``docs/benchmarks/results.md``.
"""

from __future__ import annotations

import io
import json
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, TextIO

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PROMISES = HERE / "promises.toml"
MEASURED, IMPORTED = "measured", "imported"


@dataclass(frozen=True)
class Promise:
    """One row of ``promises.toml``."""

    id: str
    area: str
    promise: str
    command: str
    unit: str = ""
    """Printed behind the value: ``s``, ``%``, ``x``."""
    most: float | None = None
    least: float | None = None

    @property
    def target(self) -> str:
        """``<= 0.25 x``; empty if nothing is asked."""
        bounds = ((self.least, ">="), (self.most, "<="))
        return " and ".join(f"{sign} {with_unit(bound, self.unit)}" for bound, sign in bounds if bound is not None)

    def is_met(self, value: float) -> bool | None:
        """Whether a value meets the target; None if there is no target."""
        if self.most is None and self.least is None:
            return None
        return (self.most is None or value <= self.most) and (self.least is None or value >= self.least)


@dataclass(frozen=True)
class Figure:
    """One measured value of a promise."""

    promise: str
    value: float
    date: str
    """ISO 8601, UTC."""
    commit: str
    command: str
    low: float | None = None
    high: float | None = None
    origin: str = MEASURED
    note: str = ""


def with_unit(value: float, unit: str) -> str:
    """``23%``, ``116 s``."""
    text = f"{value:.4g}"
    return f"{text}{unit}" if unit in ("", "%") else f"{text} {unit}"


def read_promises(file: Path = PROMISES) -> list[Promise]:
    """Return the promises, in the order of the file."""
    return [Promise(id=name, **row) for name, row in tomllib.loads(file.read_text("utf-8")).items()]


class Recorder:
    """Collects the figures of one run of a benchmark."""

    def __init__(self, promises: Iterable[Promise]) -> None:
        self._promises = {promise.id: promise for promise in promises}
        self._figures: list[dict[str, Any]] = []
        self.data: dict[str, Any] = {}
        """Further data of the run, as JSON."""

    def record(self, promise_id: str, *values: float) -> None:
        """Keep the median of the values as the promise's figure, and their range as its spread.

        Raises:
            KeyError: If ``promises.toml`` has no such promise.
        """
        promise = self._promises[promise_id]
        value = median(values)
        figure = {"promise": promise.id, "value": value, "unit": promise.unit, "target": promise.target}
        figure |= {"low": min(values), "high": max(values), "runs": len(values), "met": promise.is_met(value)}
        self._figures.append(figure)

    def document(
        self, name: str, command: str, printed: Sequence[str], begun: datetime, commit: str, machine: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the JSON document of the run."""
        document = {"benchmark": name, "command": command, "date": begun.isoformat(timespec="seconds")}
        document |= {"commit": commit, "origin": MEASURED, "machine": dict(machine), "figures": self._figures}
        return document | {"data": self.data, "printed": list(printed)}


def write_run(folder: Path, document: Mapping[str, Any]) -> Path:
    """Write the document of a run to ``DATE/NAME-TIME.json`` in the folder, and return the file."""
    begun = datetime.fromisoformat(document["date"])
    name = document["benchmark"].replace("/", "-")
    file = folder / f"{begun:%Y-%m-%d}" / f"{name}-{begun:%H%M%S}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return file


def read_figures(folder: Path = RESULTS) -> list[Figure]:
    """Return all figures of all runs. A figure of an imported document may have its own date, commit and command."""
    figures = []
    for file in sorted(folder.glob("*/*.json")):
        document = json.loads(file.read_text("utf-8"))
        common = {name: document[name] for name in ("date", "commit", "command", "origin") if name in document}
        for figure in document.get("figures", ()):
            known = {name: value for name, value in figure.items() if name in Figure.__dataclass_fields__}
            figures.append(Figure(**(common | known)))
    return figures


def newest(figures: Iterable[Figure]) -> dict[str, Figure]:
    """Return the figure with the latest date, for each promise that has one."""
    return {figure.promise: figure for figure in sorted(figures, key=lambda figure: figure.date)}


def this_machine() -> dict[str, Any]:
    """Describe the machine, and its load now."""
    cpu = ""
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def this_commit() -> str:
    """Return the short hash, with ``-changed`` if tracked files differ from it; empty outside a git checkout."""

    def git(*arguments: str) -> str:
        argv = ["git", "-C", str(HERE), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()

    commit = git("rev-parse", "--short", "HEAD")
    return f"{commit}-changed" if git("status", "--porcelain", "--untracked-files=no") else commit


class Tee(io.TextIOBase):
    """Writes to a stream, and keeps the text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._kept = stream, io.StringIO()

    def write(self, text: str) -> int:
        self._kept.write(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def lines(self) -> list[str]:
        """Return the lines that were printed."""
        return self._kept.getvalue().splitlines()


#: Of the benchmark that this process runs.
RECORDER = Recorder(read_promises())
record = RECORDER.record


def keep(**data: Any) -> None:
    """Keep further data of the run in its JSON document."""
    RECORDER.data |= data


def run_recorded(name: str, arguments: Sequence[str], folder: Path, run: Any) -> None:
    """Call ``run``, and write what it recorded and printed; nothing is written if it fails or exits."""
    begun, commit, machine = datetime.now(UTC), this_commit(), this_machine()
    tee = Tee(sys.stdout)
    sys.stdout = tee  # type: ignore[assignment]
    try:
        run()
    finally:
        sys.stdout = tee._stream
    command = " ".join(("python benchmarks", name, *arguments))
    file = write_run(folder, RECORDER.document(name, command, tee.lines(), begun, commit, machine))
    print(f"benchmarks: wrote {file}", file=sys.stderr)
