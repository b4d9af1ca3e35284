"""A whole job that really tries candidates while it trains: it ends bit for bit as one that tried nothing.

The candidates, the times at which they are tried and what is adopted for it are the controller's own, on a network
between real processes. The second job repeats what the first adopted, step for step, without a trial.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from kit.run_processes import is_gone, of_run, offspring_until
from leaves_its_state import CANDIDATES, PLANS, lines_of

pytestmark = [pytest.mark.slow, pytest.mark.namespaces, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parent / "leaves_its_state.py"
RANKS = 3
#: Slow enough that the candidates are worth a trial, then fast enough that another plan is worth adopting, and again.
NETWORK = """
apiVersion: trimtab.dev/v1alpha1
kind: Network
phases:
  - {duration: 15s, latency: 2ms, bandwidth: 20Mbps}
  - {duration: 15s, latency: 2ms, bandwidth: 1Gbps}
repeat: true
"""
JOB = """
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata: {name: tried}
spec:
  workers: 3
  restartPolicy: Never
  activeDeadlineSeconds: 300
  communication:
    fusion: {bufferSize: 200kB}
    triggers: {gain: 0.001}
    trials: {iterations: 3, budget: 1}
    localSteps: {max: 0}  # of which none are tried
  template: {spec: {containers: [{name: trainer, command: [python, SCRIPT, ARGUMENTS]}]}}
"""


@pytest.fixture
def start(trimtab, tmp_path) -> Callable[..., subprocess.Popen[str]]:
    """Starts the job with these arguments for its script, in a directory of that name."""
    (tmp_path / "net.yaml").write_text(NETWORK)

    def begin(out: str, *arguments: str) -> subprocess.Popen[str]:
        words = ", ".join(f"'{word}'" for word in arguments)
        job = tmp_path / f"{out}.yaml"
        job.write_text(JOB.replace("SCRIPT", f"'{SCRIPT}'").replace("ARGUMENTS", words).replace(", ]", "]"))
        return trimtab("run", job, "--network", "net.yaml", "--out", out)

    return begin


def states(run: Path) -> list[dict[str, Any]]:
    return [torch.load(run / f"state-{rank}.pt", weights_only=False) for rank in range(RANKS)]


def differences(a: Any, b: Any, where: str = "") -> list[str]:
    """Where two states differ in any bit."""
    if isinstance(a, dict):
        keys = [] if a.keys() == b.keys() else [f"{where}: {sorted(a.keys() ^ b.keys())}"]
        return keys + [each for key in a.keys() & b.keys() for each in differences(a[key], b[key], f"{where}.{key}")]
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return [f"{where}: {len(a)} and {len(b)} of them"]
        return [each for i, (x, y) in enumerate(zip(a, b, strict=True)) for each in differences(x, y, f"{where}[{i}]")]
    same = torch.equal(a, b) if isinstance(a, torch.Tensor) else np.array_equal(a, b)
    return [] if same else [where]


def test_a_job_with_trials_ends_bit_for_bit_as_one_without(start, tmp_path):
    for out, arguments in (("with", ()), ("without", ("--like", str(tmp_path / "with")))):
        process = start(out, *arguments)
        _, errors = process.communicate(timeout=400)
        assert process.returncode == 0, errors
    tried, untried = (lines_of(tmp_path / out / "metrics.jsonl") for out in ("with", "without"))

    assert len({line["plan"] for line in tried if line["trial"]}) >= CANDIDATES
    assert len({line["plan"] for line in tried if not line["trial"]}) >= PLANS, "and plans were adopted"
    decisions = [line for line in lines_of(tmp_path / "with" / "decisions.jsonl") if line["record"] == "decision"]
    assert all(len(line["adopted"]["fusion"]["cuts"]) >= 3 for line in decisions), "three buffers a step or more"

    assert not any(line["trial"] for line in untried)
    plans = [[(line["step"], line["plan"]) for line in lines if not line["trial"]] for lines in (tried, untried)]
    assert plans[0] == plans[1]
    for rank, (a, b) in enumerate(zip(states(tmp_path / "with"), states(tmp_path / "without"), strict=True)):
        assert differences(a, b, f"rank {rank}") == []
        assert a["residual"].any()
        assert len(a["losses"]) == a["steps"] == len(plans[0])


@pytest.mark.full
def test_a_rank_that_dies_while_the_others_exchange_ends_the_run_by_its_name(start, tmp_path):
    out = tmp_path / "out"
    process = start("out", "--die-rank", "1")
    log = out / "logs" / "rank-1.log"

    def has_died() -> bool:
        return log.exists() and "the dog ate my gradient" in log.read_text()

    processes = offspring_until(has_died, psutil.Process(process.pid), seconds=200)
    _, errors = process.communicate(timeout=30)
    lines = errors.splitlines()
    assert process.returncode == 1
    assert lines[0] == "trimtab: rank 1 ended with exit code 3; its log is out/logs/rank-1.log, and ends with"
    assert lines[-1] == "    the dog ate my gradient"
    assert len(processes) > 6  # three ranks, three monitors, the relay
    assert all(is_gone(each) for each in processes)
    assert of_run(out) == []
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"-{process.pid}-" not in namespaces
