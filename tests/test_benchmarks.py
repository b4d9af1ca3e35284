"""Every benchmark can be loaded, and is listed with what it needs and how long it takes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOADED = """
import runpy, sys
main = runpy.run_path("benchmarks")
for each in main["benchmarks"]():
    main["show_helpers"](each.name)
    runpy.run_path(f"benchmarks/{each.name}.py", run_name="loaded")
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=200)


def test_each_script_is_listed():
    listed = run("benchmarks")
    assert listed.returncode == 0, listed.stderr
    jobs = " ".join(job.read_text() for job in ROOT.glob("benchmarks/*/*.yaml"))
    for script in ROOT.glob("benchmarks/*/*.py"):
        name = script.relative_to(ROOT / "benchmarks").with_suffix("")
        is_run = "__main__" in script.read_text() and script.name not in jobs
        assert (f"{name}\n" in listed.stdout) == is_run, name


def test_each_still_finds_what_it_imports():
    loaded = run("-c", LOADED)
    assert loaded.returncode == 0, loaded.stderr


def test_an_unknown_one_is_refused_with_those_that_there_are():
    refused = run("benchmarks", "costs/nothing")
    assert refused.returncode == 2
    assert refused.stderr.startswith("benchmarks: 'costs/nothing': choose from costs/checkpoints, costs/echoes, ")
