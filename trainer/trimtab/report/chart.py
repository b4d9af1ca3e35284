"""Charts as inline SVG: a few marks on panels that share a time axis. Colours come from the page's style sheet.

A panel maps data to pixels and collects marks; `figure` puts panels under one another. No script, no fonts, no
loading: the SVG is text that the page holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from statistics import fmean, median
from typing import Protocol, TypeVar

T = TypeVar("T")
#: A point of data: time in seconds, value.
Point = tuple[float, float]

WIDTH = 1060
LEFT = 74
RIGHT = 16
#: Pixels that a key above a ribbon takes.
KEY_WIDTH = 9
#: Pixels that a flag's number takes, and how many of these it may stand beside its time.
FLAG_WIDTH, MOST_ASIDE = 17, 2
#: A line of more points than this is drawn as medians, one for each of this many slices of time.
MAX_POINTS = 400


@dataclass(frozen=True)
class Scale:
    """Maps ``low..high`` to 0..1, linearly or by logarithm."""

    low: float
    high: float
    log: bool = False
    marks: tuple[float, ...] = ()
    """Positions of the ticks; empty: round values."""

    def __call__(self, value: float) -> float:
        """Return the position of a value; outside the bounds it stays at the edge."""
        if self.log:
            share = math.log(max(value, 1e-12) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))

    def ticks(self, count: int = 5) -> list[float]:
        """Return round values within the bounds, about ``count`` of them."""
        if self.marks:
            return [mark for mark in self.marks if min(self.low, self.high) <= mark <= max(self.low, self.high)]
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if len(decades) > 3 else (1, 2, 5)
            found = [s * 10.0**d for d in decades for s in steps if self.low <= s * 10.0**d <= self.high * 1.0001]
            if len(found) > 2 or self.high > 4 * self.low:
                return found  # between bounds that are close to each other too few lie
        step = nice_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        return [step * index for index in range(first, math.floor(self.high / step + 1e-9) + 1)]


def nice_step(rough: float) -> float:
    """Return the nearest 1, 2 or 5 times a power of ten that is no smaller."""
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)


def scale_for(values: Sequence[float], log: bool = False, from_zero: bool = False) -> Scale:
    """Return a scale that holds the values and a little room around them; 0.1 to 1 where there are no values."""
    finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if not finite:
        return Scale(0.1, 1.0, log)
    low, high = min(finite), max(finite)
    if log:
        return Scale(low / 1.4, high * 1.4, log=True)
    low = min(0.0, low) if from_zero else low
    room = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    return Scale(low if from_zero else low - room, high + room)


@dataclass
class Panel:
    """One set of axes; marks are added, then `svg` draws it at a height on the page."""

    title: str
    time: Scale
    value: Scale
    height: int
    format_value: Callable[[float], str]
    headroom: int = 0
    """Pixels between the panel and its title, for flags."""
    _marks: list[str] = field(default_factory=list)
    _last_flag_at: float = -math.inf

    def x(self, seconds: float) -> float:
        """Return pixels from the left edge."""
        return LEFT + self.time(seconds) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return pixels from the panel's top."""
        return (1 - self.value(value)) * self.height

    def line(self, points: Sequence[Point], style: str, title: str) -> None:
        """Draw a line through the points."""
        path = " ".join(f"{self.x(seconds):.1f},{self.y(value):.1f}" for seconds, value in thin_out(points))
        self._marks.append(f'<polyline class="line" style="{style}" points="{path}">{_title(title)}</polyline>')

    def steps(self, points: Sequence[Point], until: float, style: str, title: str) -> None:
        """Draw a line that holds each value until the next point, the last one until ``until``."""
        corners: list[Point] = []
        for (seconds, value), (end, _) in zip(points, [*points[1:], (until, 0.0)], strict=True):
            corners += [(seconds, value), (end, value)]
        path = " ".join(f"{self.x(seconds):.1f},{self.y(value):.1f}" for seconds, value in corners)
        self._marks.append(f'<polyline class="line" style="{style}" points="{path}">{_title(title)}</polyline>')

    def dots(self, points: Sequence[Point], style: str) -> None:
        """Draw a small dot a point."""
        self._marks += [
            f'<circle class="dot" style="{style}" r="2" cx="{self.x(seconds):.1f}" cy="{self.y(value):.1f}"/>'
            for seconds, value in thin_out(points)
        ]

    def areas(self, begin: float, slices: Sequence[tuple[float, Sequence[float]]], styles: Sequence[str]) -> None:
        """Draw values on top of each other, from the panel's bottom: an area in each style.

        ``slices``: the time at which each ends, where the next begins, and its values.
        """
        begins = [begin, *(end for end, _ in slices[:-1])]
        xs = [self.x(seconds) for first, (last, _) in zip(begins, slices, strict=True) for seconds in (first, last)]
        below = [0.0] * len(slices)
        for index, style in enumerate(styles):
            above = [low + values[index] for low, (_, values) in zip(below, slices, strict=True)]
            edge, back = (
                [f"{x:.1f},{self.y(sums[number // 2]):.1f}" for number, x in enumerate(xs)] for sums in (above, below)
            )
            self._marks.append(f'<polygon style="{style}" points="{" ".join(edge + back[::-1])}"/>')
            below = above

    def rule(self, value: float, label: str) -> None:
        """Draw a dashed line across, with its name beneath its right end, where runs that reach it have been before."""
        y = self.y(value)
        self._marks.append(
            f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="small end" x="{WIDTH - RIGHT - 4}" y="{y + 14:.1f}">{escape(label)}</text>'
        )

    def flag(self, seconds: float, label: str, title: str) -> None:
        """Draw a numbered mark at a time, down the whole panel; times come in order.

        Its number stands beside that of the flag before, where that is in the way, or is left out where many are.
        """
        x = self.x(seconds)
        parts = [_title(title), f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{self.height}"/>']
        at = max(x, self._last_flag_at + FLAG_WIDTH)
        if at <= x + MOST_ASIDE * FLAG_WIDTH:
            self._last_flag_at = at
            parts.append(f'<circle cx="{at:.1f}" cy="0" r="8"/><text x="{at:.1f}" y="3.5">{escape(label)}</text>')
        self._marks.append(f'<g class="flag">{"".join(parts)}</g>')

    def svg(self, top: int, show_time: bool) -> str:
        """Return the panel as SVG, ``top`` pixels down."""
        parts = [
            f'<g transform="translate(0 {top})">',
            f'<text class="title" x="{LEFT}" y="{-9 - self.headroom}">{escape(self.title)}</text>',
        ]
        for tick in self.value.ticks(max(2, self.height // 42)):
            y = self.y(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(
                f'<text class="tick end" x="{LEFT - 8}" y="{y + 4:.1f}">{escape(self.format_value(tick))}</text>'
            )
        if show_time:
            parts += time_axis(self.time, self.x, self.height)
        return "\n".join([*parts, *self._marks, "</g>"])


@dataclass
class Ribbon:
    """A row of coloured spans along the time axis. A span shows its name, or its key where the name is too long."""

    title: str
    time: Scale
    height: int = 24
    headroom: int = 12
    """Pixels between the ribbon and its title, for the keys of spans too narrow to hold one."""
    _marks: list[str] = field(default_factory=list)
    _last_key_at: float = -math.inf

    def span(self, start: float, end: float, style: str, names: Sequence[str], key: str = "") -> None:
        """Draw a span, labelled with the first of ``names`` that fits, else ``key``; hovering shows ``names[0]``."""
        left, right = (LEFT + self.time(seconds) * (WIDTH - LEFT - RIGHT) for seconds in (start, end))
        width = max(1.0, right - left)
        self._marks.append(
            f"<g><title>{escape(names[0])}, {start:.1f} s to {end:.1f} s</title>"
            f'<rect style="{style}" x="{left:.1f}" y="0" width="{width:.1f}" height="{self.height}" rx="3"/>'
        )
        name = next((each for each in (*names, key) if each and width > 7 * len(each) + 8), None)
        middle = left + width / 2
        if name is not None:
            self._marks.append(
                f'<text class="span-name middle" x="{middle:.1f}" y="{self.height / 2 + 4}">{escape(name)}</text>'
            )
        elif key and (at := max(middle, self._last_key_at + KEY_WIDTH)) <= middle + 3 * KEY_WIDTH:
            self._last_key_at = at  # beside the key of the span before, where that is in the way
            self._marks.append(f'<text class="small middle" x="{at:.1f}" y="-4">{escape(key)}</text>')
        self._marks.append("</g>")

    def svg(self, top: int, show_time: bool) -> str:
        """Return the ribbon as SVG, ``top`` pixels down."""
        axis = (
            time_axis(self.time, lambda s: LEFT + self.time(s) * (WIDTH - LEFT - RIGHT), self.height)
            if show_time
            else []
        )
        title = f'<text class="title" x="{LEFT}" y="{-9 - self.headroom}">{escape(self.title)}</text>'
        return "\n".join([f'<g transform="translate(0 {top})">', title, *axis, *self._marks, "</g>"])


def time_axis(time: Scale, x: Callable[[float], float], height: float) -> list[str]:
    """Draw the seconds under a panel."""
    parts = []
    for tick in time.ticks(10):
        parts.append(f'<line class="grid faint" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="0" y2="{height}"/>')
        parts.append(f'<text class="tick middle" x="{x(tick):.1f}" y="{height + 17}">{tick:g} s</text>')
    return parts


class Drawn(Protocol):
    """An element of a figure: `Panel`, `Ribbon`, and what other charts bring."""

    headroom: int

    @property
    def height(self) -> int:
        """Pixels."""

    def svg(self, top: int, show_time: bool) -> str:
        """Return the element as SVG, ``top`` pixels down; with the time axis, where it is the last."""


def figure(panels: Sequence[Drawn], label: str) -> str:
    """Draw panels under one another, the last with the time axis."""
    top = 30
    parts = []
    for index, panel in enumerate(panels):
        top += panel.headroom
        parts.append(panel.svg(top, show_time=index == len(panels) - 1))
        top += panel.height + 44
    height = top - 14
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def sliced(points: Sequence[tuple[float, Sequence[float]]], most: int) -> list[tuple[float, list[float]]]:
    """Return at most so many slices of time: when each one's last point was, and the means of its values."""
    return [
        (group[-1][0], [fmean(column) for column in zip(*(each[1] for each in group), strict=True)])
        for group in _slices(points, most)
    ]


def thin_out(points: Sequence[Point]) -> list[Point]:
    """Return at most `MAX_POINTS` points: the median of each slice of time."""
    return [(median(p[0] for p in each), median(p[1] for p in each)) for each in _slices(points, MAX_POINTS)]


def _slices(points: Sequence[tuple[float, T]], most: int) -> list[list[tuple[float, T]]]:
    """Group the points by their times, in at most so many groups; each by itself where they are no more than that."""
    if len(points) <= most:
        return [[each] for each in points]
    start, end = points[0][0], points[-1][0]
    slices: dict[int, list[tuple[float, T]]] = {}
    for point in points:
        slices.setdefault(min(most - 1, int((point[0] - start) / (end - start or 1.0) * most)), []).append(point)
    return list(slices.values())


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"
