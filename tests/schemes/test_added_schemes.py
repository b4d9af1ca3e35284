"""A scheme that only this folder knows is planned, chosen, run, reported and refused like any other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trimtab_api.catalogue.registry import ENTRY_POINTS

HERE = Path(__file__).parent
SCHEMES = ("stripes", "any_k", "layers", "backwards")
JOB = """
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata: {name: added}
spec:
  workers: WORKERS
  restartPolicy: Never
  activeDeadlineSeconds: 200
  communication: COMMUNICATION
  template: {spec: {containers: [{name: trainer, command: [python, TRAINING], args: ARGUMENTS}]}}
"""


@pytest.fixture
def trimtab(tmp_path):
    """Runs the command where a package that adds these schemes is installed."""
    installed = tmp_path / "site" / "added_schemes-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: added-schemes\nVersion: 1.0\n")
    points = "".join(f"{name} = {name}:register\n" for name in SCHEMES)
    (installed / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{points}")
    path = os.pathsep.join([str(tmp_path / "site"), str(HERE)])

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trimtab", *arguments]
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)

    return run


def write_job(tmp_path: Path, communication: str, workers: int = 3, arguments: str = "[]") -> None:
    job = JOB.replace("WORKERS", str(workers)).replace("COMMUNICATION", communication).replace("ARGUMENTS", arguments)
    (tmp_path / "job.yaml").write_text(job.replace("TRAINING", f"'{HERE / 'training.py'}'"))


def test_what_an_example_takes_is_less_than_a_screen():
    for name in SCHEMES:
        assert len((HERE / f"{name}.py").read_text().splitlines()) < 60, name


def test_it_is_planned(trimtab):
    network = ("--workers", "4", "--latency", "20ms", "--bandwidth", "100Mbps")
    done = trimtab("plan", "--parameters", "10M", *network, "--json")
    assert done.returncode == 0, done.stderr
    assert "stripes" in {row["scheme"] for row in json.loads(done.stdout)["table"]}


@pytest.mark.slow
def test_it_is_run_and_reported(trimtab, tmp_path):
    plan = "0.05/stripes/fusion=layers/schedule=backwards"  # any-k trains where it is chosen
    write_job(tmp_path, f'{{policy: Static, plan: "{plan}"}}')
    done = trimtab("run", "job.yaml", "--out", "out")
    assert done.returncode == 0, done.stderr
    said = {(tmp_path / "out" / "logs" / f"rank-{rank}.log").read_text().split("plan ")[1] for rank in range(3)}
    assert len(said) == 1, "the same plan and the same weights on every rank"
    assert said.pop().split()[0] == plan
    steps = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert {step["plan"] for step in steps} == {plan}
    assert trimtab("report", "out").returncode == 0
    assert plan in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.namespaces
@pytest.mark.parametrize(
    ("communication", "schemes"),
    [
        ("collectives: [stripes], schedules: [backwards]", ("stripes", "backwards")),
        # Values in 32 bits: buffers by layer, which go while backward goes on, then hide half of the exchange.
        (
            "collectives: [all-gather], ratio: {min: 0.1, max: 0.12}, sparsifier: any-k, valueFormats: [float32],"
            " fusion: {alternatives: [layers]}",
            ("any-k", "layers"),
        ),
    ],
)
def test_it_is_chosen(trimtab, tmp_path, communication, schemes):
    write_job(tmp_path, f"{{{communication}, warmupSteps: 2}}", arguments=f"[{', '.join(schemes)}]")
    phase = "{duration: 600s, latency: 1ms, bandwidth: 10Mbps}"
    network = f"apiVersion: trimtab.dev/v1alpha1\nkind: Network\nphases: [{phase}]\n"
    (tmp_path / "net.yaml").write_text(network)
    done = trimtab("run", "job.yaml", "--network", "net.yaml", "--out", "out")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out" / "decisions.jsonl").read_text().splitlines()]
    adopted = [line["adopted"]["name"] for line in lines if line["record"] == "decision"]
    assert any(all(scheme in name for scheme in schemes) for name in adopted), adopted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("communication", "workers", "message"),
    [
        ("{policy: Static, plan: 0.05/stripes}", 9, "at most 8 ranks; use all-gather (this job has 9 ranks)"),
        ("{collectives: [stripes]}", 9, "spec.communication.collectives[0]: 'stripes': is meant for at most 8 ranks"),
        ("{policy: Static, plan: 'dense/fusion=layers:size=3'}", 3, "takes no option size; it takes selection"),
        ("{policy: Static, plan: 0.05/stripe}", 3, "not a sparse collective; choose from all-gather"),
        ("{policy: Static, plan: '0.1/all-gather/sparsifier=any-k:seed=x'}", 3, "seed=x: write a whole number"),
    ],
)
def test_it_is_refused_before_anything_starts(trimtab, tmp_path, communication, workers, message):
    write_job(tmp_path, communication, workers)
    done = trimtab("run", "job.yaml", "--out", "out")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_package_whose_schemes_cannot_be_added_is_named(trimtab, tmp_path):
    points = tmp_path / "site" / "added_schemes-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"[{ENTRY_POINTS}]\nbroken = stripes:forget\n")
    write_job(tmp_path, "{policy: Static, plan: 0.05/stripes}")
    done = trimtab("run", "job.yaml", "--out", "out")
    assert done.returncode == 2
    assert "entry point broken of trimtab.schemes: 'stripes:forget': adds no scheme, but fails" in done.stderr
