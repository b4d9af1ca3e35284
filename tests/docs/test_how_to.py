"""How-to pages: the schemes of one of them train; the network file and the job snippets of others are accepted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from doc_pages import ROOT, page_blocks
from trimtab_api.catalogue.registry import ENTRY_POINTS
from trimtab_api.trainingjob import TrainingJob
from tutorial_page import write_file

HOW_TO = ROOT / "docs/how-to"


def job(spec: dict[str, object], command: list[str]) -> dict[str, object]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "none", "command": command}]}}
    return {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "page"},
        "spec": {"workers": 2, "template": template, **spec},
    }


def trimtab(folder: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "trimtab", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.slow
def test_the_skeletons_of_schemes_train_as_they_stand(tmp_path):
    points = ""
    for block in page_blocks("docs/how-to/add-a-scheme.md"):
        if block.language == "python":
            write_file(tmp_path, block)
            points += f"{Path(block.title).stem} = {Path(block.title).stem}:register\n"
    assert points.count("register") == 3
    installed = tmp_path / "site/page-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: page\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{points}")
    plan = "0.05/all-gather/sparsifier=any-k/fusion=layers/schedule=backwards"
    spec = {"communication": {"policy": "Static", "plan": plan}}
    command = [sys.executable, str(ROOT / "tests/schemes/training.py")]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(spec, command)))
    done = trimtab(tmp_path, "run", "job.yaml", "--out", "out", path=f"{tmp_path / 'site'}:{tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert {step["plan"] for step in steps if "plan" in step} == {plan}


@pytest.mark.parametrize(
    "line", re.findall(r"`(checkpoint: \{.*?\}{1,2})`", (HOW_TO / "store-checkpoints.md").read_text())
)
def test_each_place_of_checkpoints_is_one_that_a_job_may_name(line):
    written = yaml.safe_load(line)
    accepted = TrainingJob.model_validate(job(written, ["python", "train.py"])).spec.checkpoint
    assert accepted is not None
    assert {name.replace("_", "") for name in accepted.model_fields_set} == {
        name.lower() for name in written["checkpoint"]
    }


def test_the_network_file_is_accepted(tmp_path):
    (block,) = [each for each in page_blocks("docs/how-to/emulate-a-network.md") if each.title == "network.yaml"]
    write_file(tmp_path, block)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job({"workers": 3}, ["true"])))
    done = trimtab(tmp_path, "run", "job.yaml", "--network", "network.yaml", "--loopback", "--out", "out")
    assert "network.yaml" not in done.stdout + done.stderr, "nothing is wrong with it"
