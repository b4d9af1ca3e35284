"""One rank is slow to compute: the network is not blamed for it, no plan changes for it, and the rank is named."""

import json
import re
from pathlib import Path

import pytest
from kit.run_processes import wait_until
from trimtab.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.namespaces, pytest.mark.full]

SCRIPT = Path(__file__).parent / "straggling.py"
SLOW = 2
SAID = re.compile(r"rank 2 comes (0\.\d+) s after the others")
NETWORK = """
apiVersion: trimtab.dev/v1alpha1
kind: Network
phases: [{duration: 600s, latency: 2ms, bandwidth: 1Gbps}]
"""
JOB = """
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata: {name: straggling}
spec:
  workers: 3
  restartPolicy: Never
  activeDeadlineSeconds: 200
  template: {spec: {containers: [{name: trainer, command: [python, SCRIPT, --slow-rank, "2"]}]}}
"""


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def is_named(said):
    """Whether the rank is named, with the 0.3 s by which it sleeps longer (some 10 ms more or less as the host is)."""
    found = SAID.search(said)
    return found is not None and float(found[1]) == pytest.approx(0.3, abs=0.05)


def test_a_slow_rank_is_named_and_the_network_is_not_blamed(trimtab, tmp_path, capsys):
    (tmp_path / "net.yaml").write_text(NETWORK)
    (tmp_path / "job.yaml").write_text(JOB.replace("SCRIPT", f"'{SCRIPT}'"))
    process = trimtab("run", "job.yaml", "--network", "net.yaml", "--out", "out")

    def status():
        assert process.poll() is None, "the status is heard while it trains"
        main(["status", str(tmp_path / "out"), "--once"])  # in here: a process of its own starts for seconds
        return capsys.readouterr().out

    wait_until(lambda: is_named(status()), seconds=200)
    _, errors = process.communicate(timeout=250)
    assert process.returncode == 0, errors

    steps = [line for line in lines_of(tmp_path / "out" / "metrics.jsonl") if "event" not in line]
    last = [line["last_rank"] for line in steps if line["last_rank"] is not None]
    assert len(last) > 30
    assert last.count(SLOW) > 0.9 * len(last)

    decisions = [line for line in lines_of(tmp_path / "out" / "decisions.jsonl") if line["record"] == "decision"]
    measured = [line for line in decisions if line["step"] > 0]
    assert measured, "the warm-up's end is decided on"
    assert [line["reason"] for line in measured if line["changed"] and line["trigger"] != "warm-up"] == []
    for line in measured:
        compute, dense = line["inputs"]["compute_seconds"], line["inputs"]["dense_step_seconds"]
        assert compute > 0.25, "the slow rank's computing is what a step is made of"
        assert dense < 1.3 * compute

    report = trimtab("report", "out")
    said, errors = report.communicate(timeout=60)
    assert report.returncode == 0, errors
    assert is_named(said)
    assert is_named((tmp_path / "out" / "report.html").read_text())
