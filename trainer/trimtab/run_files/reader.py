"""A finished run, read from its directory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from trimtab_api.errors import UserError

from trimtab.run_files.json_files import RecordT, read_file
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.line_file import Tail, all_records
from trimtab.run_files.schema import (
    DataNote,
    DecisionLine,
    DecisionRecord,
    JobFacts,
    Link,
    Links,
    MeasuredLine,
    NetworkNote,
    Phase,
    ReportedDecision,
    RunResult,
    decision_kind,
)
from trimtab.run_files.steps import Evaluation, LeftOutSteps, RoundEnd, Step, metric_kind


@dataclass(frozen=True)
class Run:
    """Everything that one run left behind."""

    name: str
    """The plan's name in tables: ``adaptive``, ``dense``, ``0.01/all-gather``."""
    directory: RunDirectory
    steps: list[Step]
    round_ends: list[RoundEnd]
    evaluations: list[Evaluation]
    decisions: list[ReportedDecision]
    phases: list[Phase]
    job: JobFacts
    result: RunResult
    links: list[Link] = field(default_factory=list)
    """The links as last measured; empty where nobody kept them."""
    left_out: list[LeftOutSteps] = field(default_factory=list)
    data_problem: str = ""
    """A sentence that all ranks train on the same data; empty where that is not known."""
    network_notes: list[NetworkNote] = field(default_factory=list)
    """Each time that the network ceased to be measured, or was measured again."""

    @property
    def training_steps(self) -> list[Step]:
        """The steps that trained; those of trials were undone."""
        return [step for step in self.steps if not step.trial]

    @property
    def seconds(self) -> float:
        """Seconds from the start of the schedule to the last line: training, trials and evaluation."""
        ends = [step.time for step in self.steps[-1:]] + [each.time for each in self.evaluations[-1:]]
        return max(ends, default=0.0)


def read_run(directory: RunDirectory) -> Run:
    """Read all files of a finished run. Raise `UserError` where they are missing or damaged."""
    try:
        return _read_run(directory)
    except FileNotFoundError as error:
        remedy = "no such file: this is not the directory of a finished run; name one that is, or run it again"
        raise UserError(remedy, file=str(error.filename)) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror}); check the path", file=str(error.filename)) from None


def _read_run(directory: RunDirectory) -> Run:
    lines = list(all_records(directory.metrics, metric_kind))
    decided = list(Tail(directory.decisions).new_records(_decision_kind))
    result = read_file(RunResult, directory.result)
    measured = {each.id: each for each in _of(MeasuredLine, decided)}
    return Run(
        name=result.plan or directory.path.name,
        directory=directory,
        steps=_of(Step, lines),
        round_ends=_of(RoundEnd, lines),
        evaluations=_of(Evaluation, lines),
        decisions=[each.with_measured(measured.get(each.id)) for each in _of(ReportedDecision, decided)],
        phases=list(Tail(directory.phases).new_records(lambda _: Phase)),
        job=read_file(JobFacts, directory.job),
        result=result,
        links=read_file(Links, directory.links).links if directory.links.exists() else [],
        network_notes=_of(NetworkNote, decided),
        left_out=_of(LeftOutSteps, lines),
        data_problem=next((note.problem for note in _of(DataNote, decided)), ""),
    )


def _decision_kind(line: dict[str, Any]) -> type[DecisionRecord] | None:
    kind = decision_kind(line)
    return ReportedDecision if kind is DecisionLine else kind


def _of(kind: type[RecordT], records: Iterable[object]) -> list[RecordT]:
    return [each for each in records if isinstance(each, kind)]
