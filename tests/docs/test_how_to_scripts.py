"""Scripts in how-to pages for scripts run as they stand there, on two ranks, and end with equal weights."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT, page_blocks

pytestmark = pytest.mark.slow
HOW_TO = ROOT / "docs" / "how-to"
PAGES = (
    "checkpoint-and-resume",
    "clip-and-log-gradients",
    "control-local-steps",
    "gan-or-several-optimizers",
    "gradient-accumulation-and-amp",
    "use-a-ddp-hook",
    "use-with-accelerate-trainer-lightning",
    "use-your-own-batches-and-trials",
)
RUNNER = Path(__file__).parent / "how_to_runner.py"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "TRIMTAB_PLAN": "0.1/all-gather",
}


@dataclass(frozen=True)
class Script:
    name: str
    code: str


def snippets(page: str, language: str) -> list[str]:
    """Return the whole scripts, or files, of a page."""
    found = page_blocks(f"docs/how-to/{page}.md")
    return [block.text for block in found if block.language == language and not block.is_part]


SCRIPTS = [Script(f"{page}-{n}", code) for page in PAGES for n, code in enumerate(snippets(page, "python"))]


FRAMEWORKS = [each for each in SCRIPTS if each.name.startswith("use-with")]
PLAIN = [each for each in SCRIPTS if each not in FRAMEWORKS]
Told = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return run_all(PLAIN, tmp_path_factory.mktemp("how-to"))


@pytest.fixture(scope="module")
def ended_frameworks(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return run_all(FRAMEWORKS, tmp_path_factory.mktemp("frameworks"))


def run_all(scripts: list[Script], base: Path) -> Told:
    """Run each script, those about checkpoints twice in one folder; return what each rank tells of each run, by name.

    Two processes run all of them, since importing torch takes longer than they do.
    """
    told: list[dict[str, Any]] = []
    for script in scripts:
        folder = base / script.name
        folder.mkdir()
        environment, code = {}, script.code
        if script.name == "checkpoint-and-resume-0":
            (job,) = snippets("checkpoint-and-resume", "yaml")
            (folder / "job.yaml").write_text(job.replace("/checkpoints/digits", str(folder / "checkpoints")))
            environment["TRIMTAB_JOB"] = "job.yaml"
            code = code.replace("session.close()", "session.checkpoint()\nsession.close()")  # it is over in no interval
        again = ("", "-again") if script.name.startswith("checkpoint") else ("",)
        told += [
            {"name": script.name + run, "code": code, "folder": str(folder), "environment": environment}
            for run in again
        ]
    (base / "scripts.json").write_text(json.dumps(told))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(RUNNER)]
    done = subprocess.run(
        [*command, str(base / "scripts.json")],
        cwd=base,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=300,
    )
    print(done.stdout[-4000:], done.stderr[-4000:])
    return {
        each["name"]: [
            json.loads(path.read_text())
            for rank in (0, 1)
            if (path := Path(each["folder"]) / f"{each['name']}.rank-{rank}.json").exists()
        ]
        for each in told
    }


def check(ranks: list[dict[str, Any]]) -> None:
    assert [rank["error"] for rank in ranks] == ["", ""]
    assert ranks[0]["steps"] == ranks[1]["steps"]
    assert min(ranks[0]["steps"]) > 0
    assert ranks[0]["weights"] == ranks[1]["weights"] != []


@pytest.mark.parametrize("name", [script.name for script in PLAIN])
def test_a_script_of_a_page_runs_on_two_ranks(name: str, ended: Told) -> None:
    check(ended[name])


@pytest.mark.full
@pytest.mark.parametrize("name", [script.name for script in FRAMEWORKS])
def test_a_script_for_a_framework_runs_on_two_ranks(name: str, ended_frameworks: Told) -> None:
    check(ended_frameworks[name])


@pytest.mark.parametrize("name", ["checkpoint-and-resume-0", "checkpoint-and-resume-1"])
def test_a_script_that_runs_again_has_nothing_left_to_train(name: str, ended: Told) -> None:
    first, again = ended[name][0], ended[f"{name}-again"][0]
    assert again["error"] == ""
    assert (again["steps"], again["weights"]) == (first["steps"], first["weights"])


def test_every_page_begins_with_a_script_and_ends_with_errors() -> None:
    for page in PAGES:
        text = (HOW_TO / f"{page}.md").read_text()
        assert snippets(page, "python"), page
        assert "\n## If it fails\n" in text, page


def literal_text() -> str:
    """Return every string of the product's code, one a line; a figure or name in it is an asterisk."""
    texts = []
    for path in sorted((ROOT / "trainer" / "trimtab").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (each.value if isinstance(each, ast.Constant) else "*" for each in node.values)
                texts.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_the_messages_that_pages_quote_are_those_of_the_code() -> None:
    literals, unlike = literal_text(), []
    for page in PAGES:
        for message in re.findall(
            r"^\| `([^`]+)` \|", (HOW_TO / f"{page}.md").read_text().split("## If it fails")[1], re.M
        ):
            words = message.replace("...", "").split()
            runs = [" ".join(words[start : start + 4]) for start in range(len(words) - 3)] or [" ".join(words)]
            if sum(run in literals for run in runs) * 4 < len(runs):
                unlike.append((page, message))
    assert unlike == []
