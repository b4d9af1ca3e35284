"""The table that a comparison ends with: one row for each run, with ratios to dense."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_api.units import format_duration, format_size

from trimtab.plan.names import DDP_HOOKS
from trimtab.report.summary import Summary
from trimtab.run_files.schema import NOT_VALID, SUCCESS_STATES, Target


@dataclass(frozen=True)
class Cell:
    """One figure, and its ratio to that of dense or its difference from it; empty where dense has none."""

    text: str
    against_dense: str = ""


def headings(target: Target | None) -> list[str]:
    """Return the columns' headings."""
    goal = "time to target" if target is None else f"time to {target.metric} {target.value:g}"
    return ["plan", "accuracy", goal, "median step", "bytes sent", "plan changes", "exploration", "wall time"]


def rows(summaries: dict[str, Summary], target: Target | None) -> list[list[Cell]]:
    """Return one row for each run, in order; the first cell is the plan's name."""
    dense = summaries.get("dense")
    return [_row(name, summary, None if summary is dense else dense, target) for name, summary in summaries.items()]


def _row(name: str, summary: Summary, dense: Summary | None, target: Target | None) -> list[Cell]:
    never = "not reached" if target else "–"
    return [
        Cell(
            name + ("" if summary.state in SUCCESS_STATES else f" ({summary.state})") + ("" if summary.valid else " †")
        ),
        _accuracy(summary.accuracy, dense.accuracy if dense else None),
        _seconds(summary.seconds_to_target, dense.seconds_to_target if dense else None, never),
        _seconds(summary.median_step_seconds, dense.median_step_seconds if dense else None),
        _bytes(summary.bytes_sent, dense.bytes_sent if dense else None),
        Cell(str(summary.plan_changes)),
        _exploration(summary),
        _seconds(summary.wall_seconds, dense.wall_seconds if dense else None),
    ]


def notes(summaries: dict[str, Summary]) -> list[str]:
    """Return what a reader must know to judge the table, one line each; printed beneath it."""
    said = [
        "bytes are those that rank 0 sent; × is this run over dense; "
        "exploration is trials and solving, as a share of its own wall time"
    ]
    if repeated := max((len(summary.all_seconds_to_target) for summary in summaries.values()), default=0):
        said.append(
            f"each plan ran {repeated} times, turn by turn, each time with another seed; its median run is shown"
        )
    if not all(summary.valid for summary in summaries.values()):
        said.append(f"† {NOT_VALID}")
    if any(summary.state == "target" for summary in summaries.values()):
        said.append("runs ended at their target: accuracy and wall time are those of that moment")
    said += [f"{name}: {summary.straggler}" for name, summary in summaries.items() if summary.straggler]
    said += [f"{name}: {summary.network_problem}" for name, summary in summaries.items() if summary.network_problem]
    said += [f"{name}: {summary.data_problem}" for name, summary in summaries.items() if summary.data_problem]
    said += [f"{name}: {summary.dropped}" for name, summary in summaries.items() if summary.dropped]
    if not any(summary.emulated for summary in summaries.values()):
        said.append("on loopback: no network was emulated, so these times say nothing about a slow one")
    return said


def judge(summaries: dict[str, Summary]) -> str:
    """Compare adaptive with the static plan that turned out best; empty where one of the two missed the target."""
    adaptive = summaries.get("adaptive")
    static = {
        name: summary.seconds_to_target
        for name, summary in summaries.items()
        if name not in ("adaptive", "dense", *DDP_HOOKS) and summary.seconds_to_target is not None
    }
    if adaptive is None or adaptive.seconds_to_target is None or not static:
        return ""
    best = min(static, key=lambda name: static[name])
    return (
        f"best static plan in hindsight: {best}, {format_duration(static[best])} to the target; "
        f"adaptive took {adaptive.seconds_to_target / static[best]:.2f}× that"
    )


def _accuracy(value: float | None, dense: float | None) -> Cell:
    if value is None:
        return Cell("–")
    return Cell(f"{value:.2%}", "" if dense is None else f"{100 * (value - dense):+.2f} pt")


def _seconds(value: float | None, dense: float | None, missing: str = "–") -> Cell:
    if value is None:
        return Cell(missing)
    return Cell(format_duration(value), _ratio(value, dense))


def _ratio(value: float, dense: float | None) -> str:
    if not dense:
        return ""
    ratio = value / dense
    return f"{ratio:.2f}×" if ratio >= 0.1 or ratio == 0 else f"{ratio:.2g}×"


def _bytes(sent: int, by_dense: int | None) -> Cell:
    """Format the bytes sent; torch's own DDP counts none."""
    return Cell(format_size(sent), _ratio(sent, by_dense)) if sent else Cell("–")


def _exploration(summary: Summary) -> Cell:
    if not summary.exploration_seconds:
        return Cell("none")
    if not summary.wall_seconds:  # it decided, and ended before its first step did
        return Cell(format_duration(summary.exploration_seconds))
    share = summary.exploration_seconds / summary.wall_seconds
    return Cell(format_duration(summary.exploration_seconds), f"{share:.1%}")


def sentence(name: str, summary: Summary) -> str:
    """Describe one finished run in one line."""
    if not summary.num_steps:
        return f"{name}: ended well, without a step under Trimtab; a script trains by trimtab.attach and session.step"
    parts = [f"{summary.num_steps} steps in {format_duration(summary.wall_seconds)}"]
    if summary.accuracy is not None:
        parts.append(f"accuracy {summary.accuracy:.2%}")
    if summary.seconds_to_target is not None:
        parts.append(f"target after {format_duration(summary.seconds_to_target)}")
    elif summary.state == "deadline":
        parts.append("given up")
    return f"{name}: {', '.join(parts)}"
