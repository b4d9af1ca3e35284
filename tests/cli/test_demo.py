"""What `make demo` runs: real training on a network that changes, adaptive beside dense, up to their target."""

import itertools
import json
import re
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.full]


def hosts_of(pid: int) -> list[str]:
    """The emulated hosts of a process: others on this machine may have theirs."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if f"-{pid}-" in line]


def test_adaptive_is_at_the_target_before_dense_and_every_change_of_plan_has_its_reason(trimtab, tmp_path):
    job, network = EXAMPLES / "digits.yaml", EXAMPLES / "networks" / "changing.yaml"
    plans = ("--plans", "adaptive,dense", "--until-target")
    process = trimtab("compare", job, "--network", network, *plans, "--out", "out")
    output, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors
    out = tmp_path / "out"
    summary = json.loads((out / "summary.json").read_text())
    assert [each["state"] for each in summary.values()] == ["target", "target"]
    assert all(each["emulated"] for each in summary.values())
    for plan in summary:  # its last evaluation may be a moment after the one that ended it
        lines = [json.loads(line) for line in (out / plan / "metrics.jsonl").read_text().splitlines()]
        assert max(line["accuracy"] for line in lines if line.get("event") == "evaluation") >= 0.97
    assert summary["adaptive"]["seconds_to_target"] < summary["dense"]["seconds_to_target"]
    assert summary["adaptive"]["bytes_sent"] < 0.2 * summary["dense"]["bytes_sent"]
    assert summary["adaptive"]["exploration_seconds"] < 0.1 * summary["adaptive"]["wall_seconds"]

    phases = [json.loads(line) for line in (out / "dense" / "network.jsonl").read_text().splitlines()]
    changes = list(itertools.pairwise((each["latency"], each["bandwidth"]) for each in phases))
    assert len(changes) >= 3
    assert all(before != after for before, after in changes)

    told = [json.loads(line) for line in (out / "adaptive" / "decisions.jsonl").read_text().splitlines()]
    decisions = [each for each in told if "reason" in each]
    assert decisions[0]["previous"]["collective"] == "dense-ring"
    for each in decisions:
        assert 0 < each["solving_seconds"] < 0.1 * summary["adaptive"]["wall_seconds"]
        assert each["trigger"]
        assert each["adopted"]["name"] in each["reason"]
    moves = [each for each in decisions if each["adopted"] != each["previous"]]
    assert len(moves) >= summary["adaptive"]["plan_changes"] >= 1

    assert re.search(r"^adaptive(?: †)? +9[6789]\.\d\d% +\d", output, re.MULTILINE), output
    assert re.search(r"^ +[+-]\d\.\d\d pt +0\.\d\d×", output, re.MULTILINE), output
    page = (out / "report.html").read_text()
    for heading in ("Training", "The network, and what adaptive did about it", "Decisions"):
        assert heading in page
    assert hosts_of(process.pid) == []
