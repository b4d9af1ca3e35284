"""The lines of a run's files as records (``docs/reference/run-directory.md`` describes each field)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trimtab_api.errors import UserError

from trimtab.launch.run_directory import RunDirectory
from trimtab.report.fields import WrongFieldError, figure, mapping, mappings, number, numbers, text, whole

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
    network_is_stale: bool
    """Whether the monitor no longer vouched for one of the two."""
    trial: bool
    last_rank: int | None = None
    """The rank that came last to the exchange of the step before."""
    late_seconds: float | None = None
    """By how much it came after the middle one of the ranks."""

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Step:
        """One step line of ``metrics.jsonl``. A single process exchanges nothing and writes nothing about it."""
        step_seconds = number(line, "step_seconds")
        return cls(
            step=whole(line, "step"),
            time=number(line, "time"),
            loss=figure(line, "loss"),
            step_seconds=step_seconds,
            compute_seconds=number(line, "compute_seconds", step_seconds),
            compress_seconds=number(line, "compress_seconds", 0.0),
            collective_seconds=number(line, "collective_seconds", 0.0),
            num_bytes=whole(line, "bytes", 0),
            plan=text(line, "plan", ALONE),
            plan_version=whole(line, "plan_version", 0),
            gain=figure(line, "gain"),
            latency=figure(line, "latency"),
            bandwidth=figure(line, "bandwidth"),
            network_is_stale=bool(line.get("network_stale", False)),
            trial=bool(line.get("trial", False)),
            last_rank=None if line.get("last_rank") is None else whole(line, "last_rank"),
            late_seconds=figure(line, "late_seconds"),
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
        values = {name: value for name, value in numbers(line).items() if name not in ("step", "time")}
        return cls(whole(line, "step"), number(line, "time"), values)


@dataclass(frozen=True)
class DecisionLine:
    """One decision of the controller, joined with what was measured of it later (None until then)."""

    id: int
    step: int
    time: float
    trigger: str
    changed: bool
    reason: str
    previous: str
    adopted: str
    predicted_previous_seconds: float | None
    predicted_seconds: float | None
    inputs: dict[str, float]
    """What was known, by name; what was not finite is left out."""
    pareto: list[dict[str, Any]]
    measured_previous_seconds: float | None
    measured_seconds: float | None
    solving_seconds: float
    """Of a processor, to come to it."""


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
    try:
        return _read_run(directory)
    except FileNotFoundError as error:
        remedy = "no such file: this is not the directory of a finished run; name one that is, or run it again"
        raise UserError(remedy, file=str(error.filename)) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}); check the path", file=str(error.filename)) from None


def _read_run(directory: RunDirectory) -> Run:
    steps: list[Step] = []
    evaluations: list[Evaluation] = []
    for line in Tail(directory.metrics).new_lines():
        if "event" not in line:
            steps.append(read_record(Step.from_json, line, directory.metrics))
        elif line["event"] == "evaluation":
            evaluations.append(read_record(Evaluation.from_json, line, directory.metrics))
    result = read_record(_result, read_json(directory.result), directory.result)
    return Run(
        name=result.get("plan", directory.path.name),
        directory=directory,
        steps=steps,
        evaluations=evaluations,
        decisions=read_record(_join_decisions, list(Tail(directory.decisions).new_lines()), directory.decisions),
        phases=[read_record(_phase, line, directory.phases) for line in Tail(directory.phases).new_lines()],
        job=read_record(_job, read_json(directory.job), directory.job),
        result=result,
    )


def _join_decisions(lines: list[dict[str, Any]]) -> list[DecisionLine]:
    measured = {whole(line, "id"): line for line in lines if line.get("record") == "measured"}
    return [_decision(line, measured.get(whole(line, "id"), {})) for line in lines if line.get("record") == "decision"]


def _decision(line: dict[str, Any], measured: dict[str, Any]) -> DecisionLine:
    return DecisionLine(
        id=whole(line, "id"),
        step=whole(line, "step"),
        time=number(line, "time"),
        trigger=text(line, "trigger"),
        changed=bool(line["changed"]),
        reason=text(line, "reason"),
        previous=text(mapping(line, "previous"), "name"),
        adopted=text(mapping(line, "adopted"), "name"),
        predicted_previous_seconds=figure(line, "predicted_previous_seconds"),
        predicted_seconds=figure(line, "predicted_seconds"),
        inputs=numbers(mapping(line, "inputs")),
        pareto=[_point(each) for each in mappings(line, "pareto")],
        measured_previous_seconds=figure(measured, "measured_previous_step_seconds"),
        measured_seconds=figure(measured, "measured_step_seconds"),
        solving_seconds=number(line, "solving_seconds", 0.0),  # a version before did not write it
    )


def _point(data: dict[str, Any]) -> dict[str, Any]:
    """A plan of the Pareto front: its name and what was predicted of it."""
    predicted = {name: number(data, name) for name in ("compress_seconds", "sync_seconds", "gain", "step_seconds")}
    return {"plan": text(data, "plan"), **predicted}


def _phase(line: dict[str, Any]) -> Phase:
    return Phase(number(line, "time"), number(line, "latency"), number(line, "bandwidth"))


def _result(data: dict[str, Any]) -> dict[str, Any]:
    text(data, "plan", "")
    text(data, "state", "")
    mapping({"machine": {}} | data, "machine")
    return data


def _job(data: dict[str, Any]) -> dict[str, Any]:
    """A resolved job as far as the report tells of it; one of an older version may break the rules of today."""
    text(mapping(data, "metadata"), "name")
    spec = mapping(data, "spec")
    whole(spec, "workers")
    whole(spec, "processesPerWorker", 1)
    if spec.get("target") is not None:
        text(mapping(spec, "target"), "metric")
        number(spec["target"], "value")
    return data


def read_record(make: Callable[[Any], Record], data: Any, path: Path) -> Record:
    """What ``make`` makes of data from a file. Raises `UserError` that names file and field."""
    try:
        return make(data)
    except KeyError as error:
        raise UserError(
            "is missing; the file comes from another version: run it again", file=str(path), field=error.args[0]
        ) from None
    except WrongFieldError as error:
        raise UserError(
            f"{error.remedy}; the file is damaged, or no run wrote it: name another directory, or run it again",
            file=str(path),
            field=error.name,
            value=str(error.value),
        ) from None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `UserError`; FileNotFoundError where there is none."""
    return _parse(path.read_bytes(), path)


def _parse(line: bytes, path: Path) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged("is not JSON", line, path) from None
    if not isinstance(data, dict):
        raise _damaged("is not a JSON object", line, path)
    return data


def _damaged(what: str, line: bytes, path: Path) -> UserError:
    """Nothing but a new run makes such a file whole again."""
    shown = line[:40].decode(errors="replace").rstrip("\n")
    remedy = f"{what}; the file is damaged, or no run wrote it: name another directory, or run it again"
    return UserError(remedy, file=str(path), value=shown)
