"""A finished run, read from its directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trimtab_api.errors import UserError

from trimtab.run_files.fields import mapping, mappings, number, text, whole
from trimtab.run_files.json_files import Tail, all_lines, read_json, read_record
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.schema import DecisionLine, Evaluation, LeftOutSteps, Link, NetworkNote, Phase, RoundEnd, Step


@dataclass(frozen=True)
class Run:
    """Everything that one run left behind."""

    name: str
    """The plan's name in tables: ``adaptive``, ``dense``, ``0.01/all-gather``."""
    directory: RunDirectory
    steps: list[Step]
    round_ends: list[RoundEnd]
    evaluations: list[Evaluation]
    decisions: list[DecisionLine]
    phases: list[Phase]
    job: dict[str, Any]
    result: dict[str, Any]
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
    steps: list[Step] = []
    round_ends: list[RoundEnd] = []
    left_out: list[LeftOutSteps] = []
    evaluations: list[Evaluation] = []
    metrics = directory.metrics
    for line in all_lines(metrics):
        if "event" not in line:
            steps.append(read_record(Step.from_json, line, metrics))
        elif line["event"] == "evaluation":
            evaluations.append(read_record(Evaluation.from_json, line, metrics))
        elif line["event"] == "left out":
            left_out.append(read_record(LeftOutSteps.from_json, line, metrics))
        elif line["event"] == "end of round":
            round_ends.append(read_record(RoundEnd.from_json, line, metrics))
    decision_lines = list(Tail(directory.decisions).new_lines())
    result = read_record(_result, read_json(directory.result), directory.result)
    return Run(
        name=result.get("plan", directory.path.name),
        directory=directory,
        steps=steps,
        round_ends=round_ends,
        evaluations=evaluations,
        decisions=read_record(_join_decisions, decision_lines, directory.decisions),
        phases=[read_record(Phase.from_json, line, directory.phases) for line in Tail(directory.phases).new_lines()],
        job=read_record(_job, read_json(directory.job), directory.job),
        result=result,
        links=read_record(_links, read_json(directory.links), directory.links) if directory.links.exists() else [],
        network_notes=[
            read_record(NetworkNote.from_json, line, directory.decisions)
            for line in decision_lines
            if line.get("record") == "network"
        ],
        left_out=left_out,
        data_problem=read_record(_data_problem, decision_lines, directory.decisions),
    )


def _join_decisions(lines: list[dict[str, Any]]) -> list[DecisionLine]:
    measured = {whole(line, "id"): line for line in lines if line.get("record") == "measured"}
    return [
        DecisionLine.from_json(line, measured.get(whole(line, "id"), {}))
        for line in lines
        if line.get("record") == "decision"
    ]


def _data_problem(lines: list[dict[str, Any]]) -> str:
    return next((text(line, "problem") for line in lines if line.get("record") == "data"), "")


def _links(data: dict[str, Any]) -> list[Link]:
    return [Link.from_json(each) for each in mappings(data, "links")]


def _result(data: dict[str, Any]) -> dict[str, Any]:
    text(data, "plan", "")
    text(data, "state", "")
    mapping({"machine": {}} | data, "machine")
    return data


def _job(data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a resolved job that the report shows.

    No more is checked, since an older version had other rules.
    """
    text(mapping(data, "metadata"), "name")
    spec = mapping(data, "spec")
    whole(spec, "workers")
    whole(spec, "processesPerWorker", 1)
    if spec.get("target") is not None:
        text(mapping(spec, "target"), "metric")
        number(spec["target"], "value")
    return data
