"""The tutorials work as written: their files and commands are taken from the pages and run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import ROOT, Block
from kit.run_processes import wait_until
from tutorial_page import blocks, commands, write_file

RUNS = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def environment() -> dict[str, str]:
    """A reader's shell in which Trimtab is installed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}
    return own | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def shell(command: str, folder: Path, environment: dict[str, str]) -> str:
    ended = subprocess.run(
        ["bash", "-eu", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
    return ended.stdout + ended.stderr


def losses(text: str) -> dict[str, str]:
    """The loss of each epoch, as printed."""
    return dict(re.findall(r"^epoch (\d+): .*loss ([\d.]+)$", text, re.MULTILINE))


class TestFirstRun:
    def test_make_demo_runs_the_command_that_the_page_shows(self):
        (shown,) = commands("first-run", "make demo")
        _, recipe = (ROOT / "Makefile").read_text().split("\ndemo: setup")
        recipe = recipe.split("\n\n")[0].replace("$(BIN)", ".venv/bin")
        assert " ".join(shown.replace("\\\n", " ").split()) in " ".join(recipe.replace("\\\n", " ").split())
        assert commands("first-run")[0] == "make demo\n"

    def test_the_random_network_is_one_that_compare_takes(self, tmp_path, environment):
        *_, last = commands("first-run")
        make_network = last.splitlines()[0].replace(".venv/bin/", "")
        shell(make_network, tmp_path, environment)
        assert "kind: Network" in (tmp_path / "random.yaml").read_text()

    def test_the_files_that_the_page_names_are_there(self):
        text = (ROOT / "docs/tutorials/first-run.md").read_text()
        for name in set(re.findall(r"examples/[\w./-]+", text)):
            assert (ROOT / name.rstrip(".")).is_file(), name


class TestAdoptYourDdpScript:
    pytestmark = RUNS
    PAGE = "adopt-your-ddp-script"

    def outputs(self, folder: Path, environment: dict[str, str]) -> Iterator[tuple[Block, str]]:
        for block in blocks(self.PAGE):
            if block.language in ("python", "diff", "yaml"):
                write_file(folder, block)
            elif block.language == "bash":
                yield block, shell(block.text, folder, environment)

    def test_the_page_runs_as_written(self, tmp_path, environment):
        ddp, adopted, compressed, report, by_job = (text for _, text in self.outputs(tmp_path, environment))
        assert len(losses(ddp)) == 5
        assert losses(adopted) == losses(ddp), "a dense plan trains what DDP trains"
        assert "`trimtab report` on it draws the run" in adopted
        assert losses(compressed).keys() == losses(ddp).keys()
        assert float(losses(compressed)["4"]) < 0.6
        assert "0.01/all-gather" in report
        assert len(losses(by_job)) == 5


class TestSurviveAKill:
    pytestmark = RUNS
    PAGE = "survive-a-kill"

    def test_the_page_runs_as_written(self, tmp_path, environment):
        for block in blocks(self.PAGE):
            if block.language in ("python", "yaml"):
                write_file(tmp_path, block)
        (train,), (kill,) = (commands(self.PAGE, f"terminal {number}") for number in (1, 2))
        with (tmp_path / "output").open("w") as output:
            training = subprocess.Popen(
                ["bash", "-c", train], cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            wait_until(lambda: training.poll() is not None or "epoch 1:" in (tmp_path / "output").read_text(), 200)
            assert training.poll() is None, (tmp_path / "output").read_text()
            shell(kill, tmp_path, environment)
            training.wait(200)
        finally:
            training.kill()
        text = (tmp_path / "output").read_text()
        assert training.returncode == 0, text
        assert "rank 1 ended with signal SIGKILL" in text
        assert "going on from the checkpoint of step" in text
        assert losses(text).keys() == {str(epoch) for epoch in range(10)}
        assert json.loads((tmp_path / "runs/survive/result.json").read_text())["restarts"] == 1
        (look,) = commands(self.PAGE)
        shown = shell(look, tmp_path, environment)
        assert len(re.findall("^step-", shown, re.MULTILINE)) == 2
        assert '"restarts": 1' in shown
