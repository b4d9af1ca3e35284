"""What a soak found, as a table. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from soak.fault_plan import Fault


@dataclass(frozen=True)
class Outcome:
    """What became of one fault."""

    fault: Fault
    seconds: float
    """From its end, or from it where it is over at once, until each rank has taken a step."""
    problems: tuple[str, ...] = ()


@dataclass
class SoakReport:
    """One soak."""

    seed: int
    plan: str
    outcomes: list[Outcome] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Those that are of no single fault."""
    notes: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """True if every invariant held."""
        return not self.problems and not any(outcome.problems for outcome in self.outcomes)

    def lines(self) -> list[str]:
        """Return the report, line by line."""
        title = f"soak of seed {self.seed}, plan {self.plan}: {len(self.outcomes)} faults"
        head = f"{'fault':<36} {'count':>5} {'median s':>9} {'max s':>7} {'held':>5}"
        by_kind: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in self.outcomes:
            by_kind[outcome.fault.kind.value].append(outcome)
        rows = [_row(kind, by_kind[kind]) for kind in sorted(by_kind)]
        wrong = [
            f"fault {number} ({outcome.fault.kind.value}): {problem}"
            for number, outcome in enumerate(self.outcomes)
            for problem in outcome.problems
        ]
        verdict = "every invariant held" if self.held else "AN INVARIANT WAS BROKEN"
        return [title, head, *rows, *self.notes, *wrong, *self.problems, verdict]


def _row(kind: str, outcomes: Sequence[Outcome]) -> str:
    seconds = [outcome.seconds for outcome in outcomes]
    held = sum(not outcome.problems for outcome in outcomes)
    return f"{kind:<36} {len(outcomes):>5} {median(seconds):>9.1f} {max(seconds):>7.1f} {held:>5}"
