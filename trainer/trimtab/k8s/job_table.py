"""The table of jobs that `trimtab top` shows: what stands in each column, and how wide each is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab_api.units import format_duration

from trimtab.k8s.job_row import JobRow

COLUMNS = ("JOB", "STATE", "STEP", "LOSS", "STEP TIME", "PLAN", "GAIN", "PROGRESS", "MESSAGE")
#: Columns whose cells end at the same place.
NUMBERS = ("STEP", "LOSS", "STEP TIME", "GAIN", "PROGRESS")
#: Spaces between two columns.
GAP = 2
#: Columns whose text may be cut off, and what is always shown of it.
_ELASTIC = {"JOB": 14, "PLAN": 16, "MESSAGE": 16}
#: Columns that go where there is no room for all, the first one first.
_DISPENSABLE = ("GAIN", "LOSS", "STEP TIME", "PLAN", "MESSAGE", "PROGRESS")
#: States in which nothing more happens: where there is no room for all jobs, these go first.
_OVER = ("Succeeded", "Failed", "Suspended")


def cells(row: JobRow, now: float, *, with_namespace: bool) -> list[str]:
    """Return what stands in each column of a job."""
    since = row.since_progress(now)
    return [
        f"{row.namespace}/{row.name}" if with_namespace else row.name,
        row.state,
        "" if row.step is None else str(row.step),
        "" if row.loss is None else f"{row.loss:.4g}",
        "" if row.step_seconds is None else format_duration(row.step_seconds),
        row.plan or "",
        "" if row.gain is None else f"{row.gain:.2f}",
        "" if since is None else f"{age(since)} ago",
        row.message,
    ]


def details(row: JobRow) -> list[tuple[str, str]]:
    """Return what there is to say of one job beside its line, each with a name."""
    told = (("plan", row.plan_reason), ("network", row.network), ("workers", row.workers), ("message", row.message))
    return [(name, text) for name, text in told if text]


def age(seconds: float) -> str:
    """Format seconds in the unit in which there are at least two: ``90s``, ``66m``, ``5h``, ``3d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def lines(rows: Sequence[JobRow], now: float) -> list[str]:
    """Return plain lines: a head, and one for each job."""
    several = len({row.namespace for row in rows}) > 1
    table = [list(COLUMNS), *(cells(row, now, with_namespace=several) for row in rows)]
    widths = _natural(table)
    shown = [
        (" " * GAP).join(f"{cell:{widths[name]}}" for name, cell in zip(COLUMNS, line, strict=True)).rstrip()
        for line in table
    ]
    return shown if rows else ["no TrainingJobs"]


def most_urgent(rows: Sequence[JobRow], most: int) -> list[JobRow]:
    """Return at most ``most`` jobs in order, without those that are over, then without those that come last."""
    by_urgency = sorted(range(len(rows)), key=lambda index: (rows[index].state in _OVER, index))
    return [rows[index] for index in sorted(by_urgency[:most])]


def fitted_widths(table: Sequence[Sequence[str]], width: int) -> dict[str, int]:
    """Return the columns of a table (its head apart) that fit into ``width`` characters, and each one's width.

    Names, plans and messages are cut off where they must be, the longest first; then whole columns go.
    """
    widths = _natural([list(COLUMNS), *table])
    for dispensable in ("", *_DISPENSABLE):
        widths.pop(dispensable, None)
        free = width - GAP * (len(widths) - 1) - sum(widths[name] for name in widths if name not in _ELASTIC)
        elastic = {name: widths[name] for name in widths if name in _ELASTIC}
        if sum(min(_ELASTIC[name], natural) for name, natural in elastic.items()) <= free:
            break
    return {**widths, **_shared(elastic, max(free, 0))}


def _natural(table: Sequence[Sequence[str]]) -> dict[str, int]:
    return {name: max(map(len, column)) for name, column in zip(COLUMNS, zip(*table, strict=True), strict=True)}


def _shared(wanted: Mapping[str, int], free: int) -> dict[str, int]:
    """Share ``free`` out: each gets what it wants, or else an equal share of what the others leave."""
    shares: dict[str, int] = {}
    for count, (name, want) in enumerate(sorted(wanted.items(), key=lambda each: each[1])):
        shares[name] = min(want, (free - sum(shares.values())) // (len(wanted) - count))
    return shares
