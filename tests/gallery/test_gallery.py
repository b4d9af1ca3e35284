"""The scripts of examples/gallery: few lines adopt them, and they train what they trained under DDP."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
GALLERY = HERE.parents[1] / "examples" / "gallery"
RUN_SCRIPTS = HERE / "run_scripts.py"
#: Lines that are not in the plain script, `import trimtab` apart; the README of the gallery says as many.
NUM_LINES = {"mnist": 2, "imagenet": 1, "nanogpt": 1, "word_language_model": 3, "dcgan": 2}


@pytest.mark.parametrize("script", NUM_LINES)
def test_few_lines_adopt_a_script(script: str) -> None:
    plain, adopted = ((GALLERY / f"{script}{kind}.py").read_text().splitlines() for kind in ("_plain", ""))
    lines = [line[2:].strip() for line in difflib.ndiff(plain, adopted) if line.startswith("+ ")]
    lines.remove("import trimtab")
    assert sum("trimtab.attach(" in line for line in lines) == 1
    assert len(lines) == NUM_LINES[script]
    row = next(row for row in (GALLERY / "README.md").read_text().splitlines() if row.startswith(f"| `{script}.py`"))
    assert row.split("|")[3].strip() == str(len(lines))


def runs(out: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Of each script and plan what its ranks wrote down, rank 0 first."""
    ranks = [[json.loads(line) for line in (out / f"rank-{rank}.jsonl").read_text().splitlines()] for rank in (0, 1)]
    return {(each["script"], each["plan"]): [each, other] for each, other in zip(*ranks, strict=True)}


@pytest.fixture(scope="module")
def by_torchrun(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Plain under DDP, and adopted under two plans, in one start of two processes; on one host adaptive is dense."""
    folder = tmp_path_factory.mktemp("by_torchrun")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run(
        [*launcher, RUN_SCRIPTS, "out", "ddp", "dense", "0.01/all-gather"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=280,
    )
    return runs(folder / "out")


def check(ranks: list[dict[str, Any]]) -> None:
    """Ranks have the same weights, bit for bit, and got somewhere."""
    one, other = ranks
    assert one["weights"] == other["weights"]
    losses = one["losses"]
    part = len(losses) // 4
    assert part >= 4
    assert sum(losses[-part:]) < 0.98 * sum(losses[:part])


@pytest.mark.slow
@pytest.mark.parametrize("script", NUM_LINES)
def test_dense_trains_what_ddp_does_and_compressed_ranks_stay_equal(script: str, by_torchrun: Any) -> None:
    ddp, dense, sparse = (by_torchrun[script, plan] for plan in ("ddp", "dense", "0.01/all-gather"))
    for theirs, ours in zip(ddp, dense, strict=True):
        assert ours["losses"] == theirs["losses"]
        assert ours["weights"] == theirs["weights"]
    assert sparse[0]["weights"] != dense[0]["weights"]
    for each in (dense, sparse):
        check(each)


@pytest.mark.slow
def test_so_do_all_by_the_launcher_of_ours(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: gallery}\nspec:\n  workers: 2\n"
        f"  template: {{spec: {{containers: [{{name: trainer, command: [python, '{RUN_SCRIPTS}'],"
        f" args: ['{tmp_path / 'out'}', job]}}]}}}}\n"
    )
    subprocess.run([sys.executable, "-m", "trimtab", "run", job, "--out", "run"], cwd=tmp_path, check=True, timeout=280)
    ranks_of = runs(tmp_path / "out")
    assert len(ranks_of) == len(NUM_LINES)
    for ranks in ranks_of.values():
        check(ranks)
