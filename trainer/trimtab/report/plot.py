"""A small chart of two quantities against each other, as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from trimtab.report.chart import Scale

#: Pixels left of the axes, beneath them, above them, where the upward one's name is, and on the right.
_LEFT, _BENEATH, _ABOVE, _EDGE = 66, 40, 28, 12
#: Labels that stand together are listed up to so many.
_MOST_LISTED = 3
#: Pixels from one line of small text to the next.
_LINE = 14


@dataclass
class Plot:
    """Axes of a size in pixels; dots are added, then `svg` draws them."""

    across: Scale
    upwards: Scale
    size: tuple[int, int]
    format_across: Callable[[float], str]
    format_upwards: Callable[[float], str]
    _marks: list[str] = field(default_factory=list)
    _labels: list[tuple[float, float, str]] = field(default_factory=list)
    """The start of each label, in pixels, and its text."""

    def _x(self, value: float) -> float:
        return _LEFT + self.across(value) * (self.size[0] - _LEFT - _EDGE)

    def _y(self, value: float) -> float:
        return _ABOVE + (1 - self.upwards(value)) * (self.size[1] - _BENEATH - _ABOVE)

    def dot(self, across: float, upwards: float, title: str, *, label: str = "", is_chosen: bool = False) -> None:
        """Draw a dot that says its title where the pointer rests; a ring, not colour alone, tells the chosen one."""
        x, y, said = self._x(across), self._y(upwards), f"<title>{escape(title)}</title>"
        if is_chosen:
            self._marks.append(f'<circle class="chosen" r="8" cx="{x:.1f}" cy="{y:.1f}"/>')
        style = "fill: var(--warn)" if is_chosen else "fill: var(--accent)"
        self._marks.append(f'<circle style="{style}" r="4" cx="{x:.1f}" cy="{y:.1f}">{said}</circle>')
        if label:
            self._labels.append((x + 7, y + 4, label))

    def diagonal(self) -> None:
        """Draw a dashed line where both are equal; for two equal scales."""
        low, high = self.across.low, self.across.high
        corners = f'x1="{self._x(low):.1f}" y1="{self._y(low):.1f}" x2="{self._x(high):.1f}" y2="{self._y(high):.1f}"'
        self._marks.insert(0, f'<line class="rule" {corners}/>')

    def svg(self, across: str, upwards: str, label: str) -> str:
        """Return the chart, with the names of its axes; ``label`` is for those who do not see it."""
        width, height = self.size
        bottom = height - _BENEATH
        parts = [f'<svg class="plot" style="max-width: {width}px" viewBox="0 0 {width} {height}" role="img"']
        parts[0] += f' aria-label="{escape(label)}">'
        for tick in self.upwards.ticks(4):
            y = self._y(tick)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _EDGE}" y1="{y:.1f}" y2="{y:.1f}"/>')
            text = escape(self.format_upwards(tick))
            parts.append(f'<text class="tick end" x="{_LEFT - 6}" y="{y + 4:.1f}">{text}</text>')
        last = -100.0
        for tick in self.across.ticks(5):
            if (x := self._x(tick)) - last < 52:  # the next one would lie on it
                continue
            last = x
            parts.append(f'<line class="grid faint" x1="{x:.1f}" x2="{x:.1f}" y1="{_ABOVE}" y2="{bottom}"/>')
            text = escape(self.format_across(tick))
            parts.append(f'<text class="tick middle" x="{x:.1f}" y="{bottom + 16}">{text}</text>')
        parts.append(f'<text class="small end" x="{width - _EDGE}" y="{height - 6}">{escape(across)}</text>')
        parts.append(f'<text class="small" x="2" y="12">{escape(upwards)}</text>')
        texts = [
            f'<text class="small" x="{x:.1f}" y="{y:.1f}">{escape(said)}</text>' for x, y, said in joined(self._labels)
        ]
        return "\n".join([*parts, *self._marks, *texts, "</svg>"])


def joined(labels: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Join labels that would lie on another, after a comma; of many, say how many more there are.

    Each dot still says its own where the pointer rests.
    """
    apart: list[tuple[float, float, list[str]]] = []
    for x, y, said in sorted(labels):
        for left, line, together in apart:
            if x < left + _width(_listed(together)) and abs(y - line) < _LINE:
                together.append(said)
                break
        else:
            apart.append((x, y, [said]))
    return [(x, y, _listed(together)) for x, y, together in apart]


def _listed(together: Sequence[str]) -> str:
    if len(together) <= _MOST_LISTED:
        return ", ".join(together)
    return f"{', '.join(together[: _MOST_LISTED - 1])} and {len(together) - _MOST_LISTED + 1} more"


def _width(text: str) -> float:
    """Return the pixels that a label takes, with a little room."""
    return 7.0 * len(text) + 4
