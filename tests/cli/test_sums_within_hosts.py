"""Workers of several processes, whose ranks sum first and exchange between workers only what they selected."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "summing_within_hosts.py"
JOB = """
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata: {name: hosts}
spec:
  workers: 2
  processesPerWorker: 2
  template: {spec: {containers: [{name: trainer, command: [python, SCRIPT]}]}}
"""


def test_a_job_trains_by_sums_within_its_workers_and_all_ranks_stay_equal(trimtab, tmp_path):
    (tmp_path / "job.yaml").write_text(JOB.replace("SCRIPT", f"'{SCRIPT}'"))
    process = trimtab("run", "job.yaml", "--plan", "0.1/spardl:per_host=2", "--out", "out")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    trained = dict((tmp_path / "out" / "logs" / f"rank-{rank}.log").read_text().split() for rank in range(4))
    assert set(trained) == {"0", "1", "2", "3"}
    assert len(set(trained.values())) == 1
    steps = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line["plan"] for line in steps] == ["0.1/spardl:per_host=2"] * 5
