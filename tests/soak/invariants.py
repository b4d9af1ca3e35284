"""What must hold whatever happens to a job, checked by the lines that its ranks write. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

#: Largest difference, relative to what was summed, between gradients and what became of them: weights are float32.
TOLERANCE = 1e-4


@dataclass
class Invariants:
    """All lines so far, as far as later ones are compared with them."""

    num_ranks: int
    replays: bool
    """True if a step that is trained again must give the same weights, bit for bit."""
    problems: list[str] = field(default_factory=list)
    num_weights: int = 0
    """Steps whose weights were compared."""
    num_sums: int = 0
    """Steps whose sums were compared over all ranks."""
    largest_error: float = 0.0
    """Of all sums, relative."""
    _weights: dict[tuple[int, int], int] = field(default_factory=dict)
    _sums: dict[tuple[int, int], dict[int, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, rank: int, line: dict[str, Any]) -> None:
        """Compare a rank's line with those before it."""
        step, attempt = line["step"], line["attempt"]
        key = (0 if self.replays else attempt, step)
        known = self._weights.setdefault(key, line["weights"])
        self.num_weights += 1
        if known != line["weights"]:
            self.problems.append(f"step {step}: rank {rank} has other weights than were there before")
        if "gradients" in line:
            lines = self._sums[attempt, step]
            lines[rank] = line
            if len(lines) == self.num_ranks:
                del self._sums[attempt, step]
                self._check_sums(step, list(lines.values()))

    def _check_sums(self, step: int, lines: list[dict[str, Any]]) -> None:
        """Over all ranks, gradients are what was applied and what is held back."""
        self.num_sums += 1
        for gradients, applied, held in zip(
            *(_mean(lines, name) for name in ("gradients", "applied", "held")), strict=True
        ):
            scale = max(1e-3, *(abs(value) for line in lines for value in line["gradients"]))
            error = abs(gradients - applied - held) / scale
            self.largest_error = max(self.largest_error, error)
            if error > TOLERANCE:
                self.problems.append(
                    f"step {step}: ranks' gradients add up to {gradients:.6g}, {applied:.6g} of it is applied and"
                    f" {held:.6g} held back"
                )


def _mean(lines: list[dict[str, Any]], name: str) -> list[float]:
    return [sum(values) / len(lines) for values in zip(*(line[name] for line in lines), strict=True)]
