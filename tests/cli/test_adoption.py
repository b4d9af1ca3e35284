"""Adopting Trimtab changes four lines of a plain training script."""

import difflib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trimtab.cli.main import main
from trimtab.control.cost_model.convergence import convergence_slowdown
from trimtab.control.types import ModelFacts, OptimizerFamily
from trimtab.plan.plan import Plan

EXAMPLES = Path(__file__).parents[2] / "examples"


def changes(before: Path, after: Path) -> tuple[list[str], list[str]]:
    lines = list(difflib.ndiff(before.read_text().splitlines(), after.read_text().splitlines()))
    removed = [line[2:].strip() for line in lines if line.startswith("- ")]
    added = [line[2:].strip() for line in lines if line.startswith("+ ")]
    return removed, added


@pytest.mark.pattern("a loop for one process", works="four lines change")
def test_the_plain_script_is_adopted_with_four_lines():
    removed, added = changes(EXAMPLES / "char_lm_plain.py", EXAMPLES / "char_lm.py")
    assert added == [
        "import trimtab",
        "session = trimtab.attach(model, optimizer)",
        "for inputs, targets in session.batches(loader):",
        "session.step(loss)",
    ]
    assert removed == ["for inputs, targets in loader:", "optimizer.step()"]


def losses(output: str) -> list[str]:
    return [line.split(" after ")[0] for line in output.splitlines() if line.startswith(("step", "epoch"))]


#: What is charged hangs on no size.
BY_ADAMW = ModelFacts(1000, (1000,), 2, OptimizerFamily("AdamW", "adam", has_mean_moments=True))
SMALL = ["--layers", "1", "--width", "32", "--context", "16", "--text-bytes", "4000", "--print-every", "5"]


@pytest.mark.slow
def test_without_a_launcher_the_adopted_script_trains_as_the_plain_one_does():
    plain, adopted = (
        subprocess.run(
            [sys.executable, EXAMPLES / script, *SMALL], capture_output=True, text=True, timeout=120, check=True
        )
        for script in ("char_lm_plain.py", "char_lm.py")
    )
    assert len(losses(plain.stdout)) > 3
    assert losses(adopted.stdout) == losses(plain.stdout)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(800)
def test_the_adopted_script_trains_on_several_workers(trimtab, tmp_path):
    job = tmp_path / "job.yaml"
    arguments = ", ".join(f"'{word}'" for word in SMALL)
    job.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: char-lm}\n"
        "spec:\n  workers: 2\n  template: {spec: {containers: [{name: trainer, command: [python, "
        f"'{EXAMPLES / 'char_lm.py'}'], args: [{arguments}]}}]}}}}\n"
    )
    for out in ("out", "again", "and-again"):
        process = trimtab("run", job, "--out", out)
        _, errors = process.communicate(timeout=240)
        assert (process.returncode, errors) == (0, "")
        lines = [json.loads(line) for line in (tmp_path / out / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if not line.get("trial") and "event" not in line]
        decided = [json.loads(line) for line in (tmp_path / out / "decisions.jsonl").read_text().splitlines()]
        decisions = [line for line in decided if line["record"] == "decision"]
        if decisions:
            break  # a busy machine has no figures after the 20 s that training waits for some, and trains for 0.3 s
    assert len(steps) == 4000 // 16 // 8 // 2
    assert all(line["loss"] > 0 for line in steps)
    assert steps[0]["bytes"] > 0, "later steps may be local"
    assert main(["report", str(tmp_path / out)]) == 0
    assert {line["inputs"]["optimizer"] for line in decisions} == {"AdamW (adam)"}
    considered = [point for line in decisions for point in line["pareto"]]
    assert considered
    for point in considered:
        lawful = convergence_slowdown(Plan.parse(point["plan"]), point["gain"], BY_ADAMW)
        assert point["relative_steps"] == pytest.approx(max(1.0, lawful)), "whatever it is that AdamW is charged"


DDP_STYLE = Path(__file__).parent / "ddp_style.py"
WRAPPING = "model = DistributedDataParallel(model)"
#: A line a step of rank 0: three epochs of 256 samples, 16 a batch, on two ranks.
NUM_LINES = 3 * 256 // 16 // 2
ATTACHING = "__import__('trimtab').attach(model, optimizer)"


def printed(text: str) -> list[str]:
    """The losses and norms that rank 0 printed, every digit."""
    return [line[line.index("epoch") :] for line in text.splitlines() if " loss " in line]


@pytest.fixture(scope="module")
def of_ddp() -> list[str]:
    """What the script prints as it was found: all of it, though Gloo sometimes aborts a process that has left."""
    lines = printed(by_torchrun(DDP_STYLE, is_ours=False).stdout)
    assert len(lines) == NUM_LINES
    return lines


def by_torchrun(
    script: Path, folder: Path | None = None, *, is_ours: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script],
        capture_output=True,
        text=True,
        timeout=240,
        check=is_ours,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )


@pytest.fixture
def adopted(tmp_path) -> Path:
    source = DDP_STYLE.read_text()
    assert source.count(WRAPPING) == 1
    script = tmp_path / "adopted.py"
    script.write_text(source.replace(WRAPPING, ATTACHING))
    return script


@pytest.mark.full
@pytest.mark.slow
def test_one_line_of_a_ddp_script_changes_and_dense_prints_the_same_digits(trimtab, tmp_path, adopted, of_ddp):
    """And under a compressed plan, under both launchers, in the gallery: no other digits come about by themselves."""
    job = tmp_path / "job.yaml"
    job.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: ddp-style}\n"
        "spec:\n  workers: 2\n  communication: {policy: Static, plan: dense}\n"
        f"  template: {{spec: {{containers: [{{name: trainer, command: [python, '{adopted}']}}]}}}}\n"
    )
    process = trimtab("run", job, "--out", "out")
    _, errors = process.communicate(timeout=240)
    assert (process.returncode, errors) == (0, "")
    recorded_as_printed(tmp_path / "out", printed((tmp_path / "out" / "logs" / "rank-0.log").read_text()), of_ddp)


@pytest.mark.pattern("a loop written for DDP", works="one line changes; dense gives DDP's digits")
@pytest.mark.slow
def test_so_does_the_script_under_the_launcher_that_it_had(tmp_path, adopted, of_ddp):
    ours = printed(by_torchrun(adopted, tmp_path, TRIMTAB_PLAN="dense").stdout)
    recorded_as_printed(tmp_path / "runs" / "adopted", ours, of_ddp)


def recorded_as_printed(run: Path, ours: list[str], of_ddp: list[str]) -> None:
    """A line a step in the run's directory and in the output, which is DDP's to the last digit."""
    assert len(ours) == NUM_LINES
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == len(ours)
    assert all(line["bytes"] > 0 for line in lines)
    assert ours == of_ddp
