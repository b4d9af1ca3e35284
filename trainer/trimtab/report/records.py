"""The lines of a run's files as records (``docs/reference/run-directory.md`` describes each field)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trimtab_api.errors import UserError

from trimtab.launch.run_directory import RunDirectory

Record = TypeVar("Record")

#: The plan of a single process.
ALONE = "no exchange"


@dataclass(frozen=True)
class Step:
    """One training step, as rank 0 saw it. Times in seconds; ``time`` counts from the start of the schedule."""

    step: int
    time: float
    loss: float | None
    step_seconds: float
    compute_seconds: float
    """Of the step, what was not spent waiting for the exchange."""
    compress_seconds: float
    """Selecting and packing; runs beside backward, so it is no part of the step by itself."""
    collective_seconds: float
    """Sending and waiting for others; runs beside backward too."""
    num_bytes: int
    """Sent by rank 0 in this step."""
    plan: str
    plan_version: int
    gain: float | None
    latency: float | None
    """Measured by the monitor: one way, seconds."""
    bandwidth: float | None
    """Measured by the monitor: bytes a second."""
    trial: bool

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Step:
        """One step line of ``metrics.jsonl``. A single process exchanges nothing and writes nothing about it."""
        return cls(
            step=line["step"],
            time=line["time"],
            loss=line.get("loss"),
            step_seconds=line["step_seconds"],
            compute_seconds=line.get("compute_seconds", line["step_seconds"]),
            compress_seconds=line.get("compress_seconds", 0.0),
            collective_seconds=line.get("collective_seconds", 0.0),
            num_bytes=line.get("bytes", 0),
            plan=line.get("plan", ALONE),
            plan_version=line.get("plan_version", 0),
            gain=line.get("gain"),
            latency=line.get("latency"),
            bandwidth=line.get("bandwidth"),
            trial=line.get("trial", False),
        )


@dataclass(frozen=True)
class Evaluation:
    """What the user reported of the model at one time: accuracy and whatever else."""

    step: int
    time: float
    values: dict[str, float]

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Evaluation:
        """One evaluation line of ``metrics.jsonl``."""
        values = {name: value for name, value in line.items() if name not in ("event", "step", "time")}
        return cls(line["step"], line["time"], values)


@dataclass(frozen=True)
class DecisionLine:
    """One decision of the controller, joined with what was measured of it later (None until then)."""

    id: int
    step: int
    time: float
    trigger: str
    changed: bool
    reason: str
    left: str
    adopted: str
    predicted_left_seconds: float
    predicted_seconds: float
    inputs: dict[str, Any]
    pareto: list[dict[str, Any]]
    measured_left_seconds: float | None
    measured_seconds: float | None


@dataclass(frozen=True)
class Phase:
    """One phase of the emulated network: what was set, not what was measured."""

    time: float
    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Run:
    """Everything that one run left behind."""

    name: str
    """The plan's name in tables: ``adaptive``, ``dense``, ``0.01/all-gather``."""
    directory: RunDirectory
    steps: list[Step]
    evaluations: list[Evaluation]
    decisions: list[DecisionLine]
    phases: list[Phase]
    job: dict[str, Any]
    result: dict[str, Any]

    @property
    def training_steps(self) -> list[Step]:
        """The steps that trained; those of trials were undone."""
        return [step for step in self.steps if not step.trial]

    @property
    def seconds(self) -> float:
        """From the start of the schedule to the last line: training, trials and evaluation."""
        ends = [step.time for step in self.steps[-1:]] + [each.time for each in self.evaluations[-1:]]
        return max(ends, default=0.0)


class Tail:
    """Reads the lines that a file gained since the last call; a line still being written waits for the next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """Each new line as JSON. Nothing while the file does not exist. Raises `UserError` on a damaged line."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                yield _parse(line, self._path)


def read_run(directory: RunDirectory) -> Run:
    """All files of a finished run. Raises `UserError` where they are missing or damaged."""
    steps: list[Step] = []
    evaluations: list[Evaluation] = []
    for line in Tail(directory.metrics).new_lines():
        if "event" not in line:
            steps.append(_record(Step.from_json, line, directory.metrics))
        elif line["event"] == "evaluation":
            evaluations.append(_record(Evaluation.from_json, line, directory.metrics))
    result = _read_json(directory.result)
    return Run(
        name=result.get("plan", directory.path.name),
        directory=directory,
        steps=steps,
        evaluations=evaluations,
        decisions=_record(_join_decisions, list(Tail(directory.decisions).new_lines()), directory.decisions),
        phases=[_record(_phase, line, directory.phases) for line in Tail(directory.phases).new_lines()],
        job=_read_json(directory.job),
        result=result,
    )


def _join_decisions(lines: list[dict[str, Any]]) -> list[DecisionLine]:
    measured = {line["id"]: line for line in lines if line["record"] == "measured"}
    return [
        DecisionLine(
            id=line["id"],
            step=line["step"],
            time=line["time"],
            trigger=line["trigger"],
            changed=line["changed"],
            reason=line["reason"],
            left=line["left"]["name"],
            adopted=line["adopted"]["name"],
            predicted_left_seconds=line["predicted_left_seconds"],
            predicted_seconds=line["predicted_seconds"],
            inputs=line["inputs"],
            pareto=line["pareto"],
            measured_left_seconds=measured.get(line["id"], {}).get("measured_left_step_seconds"),
            measured_seconds=measured.get(line["id"], {}).get("measured_step_seconds"),
        )
        for line in lines
        if line["record"] == "decision"
    ]


def _phase(line: dict[str, Any]) -> Phase:
    return Phase(line["time"], line["latency"], line["bandwidth"])


def _record(make: Callable[[Any], Record], data: Any, path: Path) -> Record:
    try:
        return make(data)
    except KeyError as error:
        raise UserError(
            "is missing; the file comes from another version", file=str(path), field=error.args[0]
        ) from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return _parse(path.read_bytes(), path)
    except FileNotFoundError:
        raise UserError("no such file: this is not the directory of a finished run", file=str(path)) from None


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        raise UserError("is not JSON", file=str(path), value=text[:40].decode(errors="replace")) from None
    if not isinstance(data, dict):
        raise UserError("is not a JSON object", file=str(path), value=text[:40].decode(errors="replace"))
    return data
