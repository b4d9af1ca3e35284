"""Threads follow the processors that a process may use, and not those that the machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from trimtab.process import cpus
from trimtab.process.cpus import usable_cpus


def test_a_cpuset_counts() -> None:
    code = (
        "import os; from trimtab.process.cpus import usable_cpus\n"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); print(usable_cpus())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "1\n"


@pytest.mark.parametrize(("limit", "count"), [("max 100000", 64), ("250000 100000", 3), ("50000 100000", 1)])
@pytest.mark.parametrize("version", [1, 2])
def test_a_containers_limit_counts_rounded_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, limit: str, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64))
    quota, period = limit.replace("max", "-1" if version == 1 else "max").split()
    for name, text in (("_CPU_MAX", limit), ("_QUOTA", f"{quota}\n"), ("_PERIOD", f"{period}\n")):
        monkeypatch.setattr(cpus, name, tmp_path / name)
        if (name == "_CPU_MAX") == (version == 2):
            (tmp_path / name).write_text(text)
    assert usable_cpus() == count
