"""The profiled steps of a run as a Chrome trace: phases named as in Horovod's timeline, with COMPRESS and PLAN beside.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU has the format.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trimtab_api.errors import UserError

from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.line_file import Tail
from trimtab.run_files.schema import DecisionLine, TraceLine, decision_kind

#: Rows of the trace that are no buffer's, in their order; links follow.
_LANES = ("step", "computing", "compressing")
_RANK, _BUFFERS, _CONTROLLER = 0, 1, 2
_PROCESSES = {_RANK: "rank 0", _BUFFERS: "buffers of rank 0", _CONTROLLER: "controller"}
_MICROSECONDS = 1e6


def chrome_trace(directory: RunDirectory) -> dict[str, Any]:
    """Return the trace as the object that a viewer reads (chrome://tracing, ui.perfetto.dev).

    Raises:
        UserError: No step was profiled, or a file is damaged.
    """
    if not directory.path.is_dir():
        raise UserError("no such directory; name what `trimtab run --out` named", file=str(directory.path))
    rows: dict[str, tuple[int, int]] = {}
    events: list[dict[str, Any]] = []
    for line in Tail(directory.trace).new_records(lambda _: TraceLine):
        events += _step_events(line, rows)
    if not events:
        raise UserError(
            "holds no profiled step; steps 4 to 8 under each plan are, of jobs of several ranks: train for longer",
            file=str(directory.trace),
        )
    decided = Tail(directory.decisions).new_records(decision_kind)
    events += [_plan_event(each) for each in decided if isinstance(each, DecisionLine)]
    return {"displayTimeUnit": "ms", "traceEvents": [*_names(rows), *sorted(events, key=lambda event: event["ts"])]}


def _step_events(line: TraceLine, rows: dict[str, tuple[int, int]]) -> list[dict[str, Any]]:
    events = []
    for span in line.spans:
        process, thread = rows.setdefault(span.row, _place(span.row, len(rows)))
        arguments = {"step": line.step, "plan": line.plan, "of": span.name}
        events.append(_event(span.phase, process, thread, span.begin, span.end - span.begin, arguments))
    return events


def _plan_event(decision: DecisionLine) -> dict[str, Any]:
    """Return a decision of the controller as an event at the time when it was made and written down."""
    arguments = {
        "step": decision.step,
        "trigger": decision.trigger,
        "plan": decision.adopted.name,
        "reason": decision.reason,
    }
    event: dict[str, Any] = _event("PLAN", _CONTROLLER, 0, decision.time, decision.solving_seconds, arguments)
    return event


def _place(row: str, number_of_rows: int) -> tuple[int, int]:
    kind, _, index = row.partition(" ")
    if kind == "buffer":
        return _BUFFERS, int(index)
    return _RANK, _LANES.index(row) if row in _LANES else len(_LANES) + number_of_rows


def _event(phase: str, process: int, thread: int, begin: float, seconds: float, arguments: dict[str, Any]) -> Any:
    return {
        "name": phase,
        "cat": phase,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": round(begin * _MICROSECONDS, 1),
        "dur": round(max(0.0, seconds) * _MICROSECONDS, 1),
        "args": arguments,
    }


def _names(rows: dict[str, tuple[int, int]]) -> Iterable[dict[str, Any]]:
    for process, name in _PROCESSES.items():
        yield {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}
    for row, (process, thread) in (*rows.items(), ("plan", (_CONTROLLER, 0))):
        yield {"name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": row}}
        yield {"name": "thread_sort_index", "ph": "M", "pid": process, "tid": thread, "args": {"sort_index": thread}}
