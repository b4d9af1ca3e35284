"""The programs that export metrics, started as they are: an operator without a cluster, a monitor, a run's metrics."""

import json
import sys
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "cluster"))

from programs import Program, wait_until
from trimtab.launch.environment.ports import free_ports

NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "nowhere",
    "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "nobody", "user": {}}],
    "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
}


def scrape(program, port):
    """What a program exports, once it does."""
    found = []

    def answers():
        assert program.is_running, program.last_lines()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
                found.append(answer.read().decode())
        except OSError:
            return False
        return True

    wait_until(answers, f"port {port} answers with metrics ({program.log})")
    return found[0]


def write_run(directory):
    """A run of one step, one checkpoint and one decision."""
    directory.mkdir()
    names = ("time", "loss", "step_seconds", "compute_seconds", "late_seconds", "gain", "achieved_ratio")
    figures = dict.fromkeys((*names, "residual_norm"), 0.5)
    step = {"step": 0, "plan": "0.01/all-gather", "plan_version": 1, "last_rank": 1, "finite": True, **figures}
    decision = {
        "record": "decision",
        "id": 1,
        "step": 0,
        "time": 0.5,
        "trigger": "network",
        "changed": True,
        "reason": "",
    }
    decision |= {"previous": {"name": "dense"}, "adopted": {"name": "0.01/all-gather"}, "predicted_seconds": 0.5}
    decision |= {"inputs": {"dense_step_seconds": 0.5, "compute_seconds": 0.25}, "pareto": []}
    measured = {"record": "measured", "id": 1, "measured_step_seconds": 0.5}
    checkpoint = {"event": "checkpoint", "step": 1, "time": 0.5, "seconds": 0.5, "bytes": 1}
    evaluation = {"event": "evaluation", "step": 0, "time": 0.5, "accuracy": 0.5}
    (directory / "job.json").write_text("{}")
    (directory / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in (step, evaluation, checkpoint))
    )
    (directory / "decisions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (decision, measured)))


def scrape_all(directory):
    """What a real operator that does not lead, a real monitor and the server of a run's metrics export."""
    (directory / "kubeconfig").write_text(json.dumps(NOWHERE))
    own, of_operator, of_monitor, of_run = free_ports(4)
    write_run(directory / "run")
    commands = {
        of_operator: ["-m", "trimtab_operator.main", "--netmon-image=netmon:1", f"--port={of_operator}"],
        of_monitor: ["-m", "trimtab_netmon.main", "serve", "--rank=0", f"--peers=localhost:{own}", "--interface=lo"],
    }
    commands[of_run] = ["-m", "trimtab", "metrics", str(directory / "run"), f"--port={of_run}"]
    commands[of_monitor] += [f"--listen=127.0.0.1:{own}", f"--metrics-port={of_monitor}"]
    programs = {
        port: Program(
            [sys.executable, *command], directory / f"{port}.log", {"KUBECONFIG": str(directory / "kubeconfig")}
        )
        for port, command in commands.items()
    }
    try:
        texts = [scrape(program, port) for port, program in programs.items()]
    finally:
        for program in programs.values():
            program.kill()
    return dict(zip(("operator", "monitor", "run"), texts, strict=True))
