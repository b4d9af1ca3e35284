"""A real job of four ranks trains through faults on the emulated network, and every invariant holds.

`make soak MINUTES=n SEED=s` runs the same for longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from soak.soak_run import soak

pytestmark = [pytest.mark.namespaces, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_short_soak_holds_every_invariant(tmp_path: Path) -> None:
    report = soak(tmp_path / "s", seed=1, minutes=1.0)
    assert report.held, "\n".join(report.lines())
    assert report.outcomes


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [2, 3])
def test_soak_of_ten_minutes_holds_every_invariant(tmp_path: Path, seed: int) -> None:
    report = soak(tmp_path / "s", seed=seed, minutes=10.0)
    assert report.held, "\n".join(report.lines())
