"""One step, moment by moment: what was computed, compressed and sent at the same time, and what was predicted of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from trimtab_api.units import format_duration

from trimtab.report.chart import LEFT, RIGHT, WIDTH, Scale, figure
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.line_file import Tail
from trimtab.run_files.schema import ProfileLine, TraceLine

_ROW_HEIGHT, _ROW_GAP = 22, 6
#: Style-sheet variables: those of a step's parts, told apart from each other.
_COLORS = {"FORWARD": "--forward", "BACKWARD": "--backward", "COMPRESS": "--other"}
_SENDING, _COMPUTING = "--exposed", "--optimizer"
#: Waiting stands empty, in a forward pass as at its step's end.
_IDLE = "WAIT_FOR_DATA"
#: Labels beside rows whose names are too long.
_LABELS = {"compressing": "compress", "computing": "compute"}
#: Spans of a row that are closer to each other than this share of the step are drawn as one.
_NEAR = 1 / 2000


@dataclass(frozen=True)
class Bar:
    """Something that went on in a row, in seconds from the step's begin."""

    row: str
    begin: float
    end: float
    color: str
    said: str


@dataclass(frozen=True)
class TracedStep:
    """One step, as it was traced or predicted."""

    plan: str
    seconds: float
    bars: tuple[Bar, ...]
    step: int = -1

    @property
    def has_exchange(self) -> bool:
        """True if anything is sent in it. Of a round of local steps only the last exchanges."""
        return any(bar.row != "computing" for bar in self.bars)

    @property
    def extent(self) -> float:
        """Seconds until all of it is over: a schedule may let some arrive under the next step's forward pass."""
        return max((self.seconds, *(bar.end for bar in self.bars)))

    @property
    def rows(self) -> list[str]:
        """The names of the rows, in the order in which they stand."""
        links = sorted({bar.row for bar in self.bars if bar.row.startswith("link")})
        return ["computing", "compressing", *links]


@dataclass
class Lanes:
    """The rows of one step, as a panel of a figure."""

    title: str
    step: TracedStep
    time: Scale
    rows: Sequence[str]
    headroom: int = 0

    @property
    def height(self) -> int:
        """Pixels."""
        return len(self.rows) * (_ROW_HEIGHT + _ROW_GAP)

    def _x(self, seconds: float) -> float:
        return LEFT + self.time(seconds) * (WIDTH - LEFT - RIGHT)

    def svg(self, top: int, show_time: bool) -> str:
        """Return the panel as SVG, ``top`` pixels down; its ticks stand under each panel, for steps are short."""
        del show_time
        parts = [
            f'<g transform="translate(0 {top})">',
            f'<text class="title" x="{LEFT}" y="-9">{escape(self.title)}</text>',
        ]
        for tick in self.time.ticks(10):
            x = self._x(tick)
            parts.append(f'<line class="grid faint" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{self.height}"/>')
            said = format_duration(tick) if tick else "0"
            parts.append(f'<text class="tick middle" x="{x:.1f}" y="{self.height + 15}">{said}</text>')
        for number_of_row, row in enumerate(self.rows):
            y = number_of_row * (_ROW_HEIGHT + _ROW_GAP)
            parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 15}">{escape(_LABELS.get(row, row))}</text>')
            parts += [self._bar(bar, y) for bar in self.step.bars if bar.row == row]
        end = self._x(self.step.seconds)
        parts.append(f'<line class="rule" x1="{end:.1f}" x2="{end:.1f}" y1="-4" y2="{self.height}"/>')
        return "\n".join([*parts, "</g>"])

    def _bar(self, bar: Bar, y: int) -> str:
        left, right = self._x(bar.begin), self._x(bar.end)
        width = max(1.0, right - left - 0.6)
        moments = f"{bar.said}, {format_duration(bar.begin)} to {format_duration(bar.end)}"
        return (
            f'<rect style="fill: var({bar.color})" x="{left:.1f}" y="{y}" width="{width:.1f}" '
            f'height="{_ROW_HEIGHT}" rx="2"><title>{escape(moments)}</title></rect>'
        )


def step_figure(directory: RunDirectory) -> str:
    """Draw a typical traced step with an exchange, of the last plan that has one, over its prediction; else empty."""
    traced = [_traced(line) for line in Tail(directory.trace).new_records(lambda _: TraceLine)]
    exchanged = [step for step in traced if step.has_exchange]
    if not exchanged:
        return ""
    last = [step for step in exchanged if step.plan == exchanged[-1].plan]
    measured = sorted(last[-5:], key=lambda step: step.seconds)[len(last[-5:]) // 2]
    predicted = _predicted(directory, measured.plan)
    longest = max(step.extent for step in (measured, predicted or measured))
    time, rows = Scale(0.0, 1.02 * longest), max((predicted or measured).rows, measured.rows, key=len)
    panels = [Lanes(f"step {measured.step}, as it went: {format_duration(measured.seconds)}", measured, time, rows)]
    if predicted is not None:
        title = f"as it was predicted: {format_duration(predicted.seconds)}"
        panels.append(Lanes(title, predicted, time, rows, headroom=10))
    return _legend(measured, predicted) + figure(panels, "what went on at the same time in one step")


def _legend(measured: TracedStep, predicted: TracedStep | None) -> str:
    colors = {bar.color for step in (measured, predicted) if step is not None for bar in step.bars}
    named = (
        (_COLORS["FORWARD"], "forward"),
        (_COLORS["BACKWARD"], "backward"),
        (_COMPUTING, "forward and backward"),
        (_COLORS["COMPRESS"], "compressing"),
        (_SENDING, "sending"),
    )
    chips = "".join(
        f'<span><span class="chip" style="background: var({color})"></span>{name}</span>'
        for color, name in named
        if color in colors
    )
    return f'<div class="legend"><span><b>{escape(measured.plan)}</b></span>{chips}</div>'


def _predicted(directory: RunDirectory, plan: str) -> TracedStep | None:
    """Return the last prediction of a plan's step with its exchange; only the mean of local steps is predicted."""

    def kind(line: dict[str, Any]) -> type[ProfileLine] | None:
        is_wanted = line.get("record") == "profile" and line.get("plan") == plan and line.get("predicted")
        return ProfileLine if is_wanted else None

    predicted = [_prediction(line) for line in Tail(directory.decisions).new_records(kind)]
    return next((step for step in reversed(predicted) if step.has_exchange), None)


def _prediction(line: ProfileLine) -> TracedStep:
    bars = []
    for span in line.predicted.spans:
        color = {"computing": _COMPUTING, "compressing": _COLORS["COMPRESS"]}.get(span.row, _SENDING)
        bars.append(Bar(span.row, span.begin, span.end, color, span.row))
    return TracedStep(line.plan, line.predicted.step_seconds, tuple(bars))


def _traced(line: TraceLine) -> TracedStep:
    step = next(span for span in line.spans if span.row == "step")
    bars = [
        Bar(
            span.row,
            max(0.0, span.begin - step.begin),
            span.end - step.begin,
            _COLORS.get(span.phase, _SENDING),
            f"{span.phase} {span.name}",
        )
        for span in line.spans
        if span.row != "step" and not span.row.startswith("buffer") and span.phase != _IDLE
    ]
    seconds = step.end - step.begin
    return TracedStep(line.plan, seconds, _joined(bars, _NEAR * seconds), line.step)


def _joined(bars: Sequence[Bar], near: float) -> tuple[Bar, ...]:
    """Join bars of a row and colour that follow each other closely: a step has a span for each tensor."""
    made: list[Bar] = []
    for bar in sorted(bars, key=lambda bar: (bar.row, bar.begin)):
        last = made[-1] if made else None
        if (
            last
            and bar.row == "computing"
            and (last.row, last.color) == (bar.row, bar.color)
            and bar.begin - last.end < near
        ):
            made[-1] = Bar(bar.row, last.begin, max(last.end, bar.end), bar.color, bar.said.partition(" ")[0])
        else:
            made.append(bar)
    return tuple(made)
