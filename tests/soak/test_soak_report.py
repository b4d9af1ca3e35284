"""The report of a soak counts by kind, and names each invariant that was broken."""

from __future__ import annotations

from soak.fault_plan import Fault, Kind
from soak.soak_report import Outcome, SoakReport


def outcome(kind: Kind, seconds: float, *problems: str) -> Outcome:
    return Outcome(Fault(kind, gap=1.0, seconds=0.0, target=0, other=1), seconds, problems)


def test_report_counts_faults_and_gives_median_and_longest_time() -> None:
    report = SoakReport(3, "dense", [outcome(Kind.KILL_RANK, seconds) for seconds in (2.0, 9.0, 3.0)])
    assert report.held
    row = next(line for line in report.lines() if line.startswith(Kind.KILL_RANK.value))
    assert row.split()[-4:] == ["3", "3.0", "9.0", "3"]


def test_report_names_the_fault_with_a_broken_invariant() -> None:
    report = SoakReport(3, "dense", [outcome(Kind.LOSS, 1.0), outcome(Kind.FLAP, 1.0, "weights differ")])
    assert not report.held
    assert "fault 1 (a host's links flap): weights differ" in report.lines()
    assert report.lines()[-1] == "AN INVARIANT WAS BROKEN"
