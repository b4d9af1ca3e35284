"""Figures of benchmarks: what a run writes, what the generated page shows, and that each promise can be measured."""

import json
import re
import runpy
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[1] / "scripts"))

import results
from results import Figure, Promise, Recorder
from results_page import results_page

ROOT = Path(__file__).parents[1]
PAUSE = Promise("pause", "Checkpoints", "A short pause", "python benchmarks costs/checkpoints", unit="s", most=0.25)
SPEED = Promise("speed", "Steps", "Fast steps", "python benchmarks training/demo", unit="x", least=3)
WALL = Promise("wall", "Steps", "Wall time", "python benchmarks training/demo")
BEGUN = datetime(2026, 12, 1, 2, 30, 5, tzinfo=UTC)


def test_a_run_is_written_with_commit_date_machine_and_spread(tmp_path):
    recorder = Recorder([PAUSE])
    recorder.record("pause", 0.3, 0.1, 0.2)
    document = recorder.document("costs/x", "python benchmarks costs/x", ["done"], BEGUN, "abc1234", {"cores": 2})
    file = results.write_run(tmp_path, document)
    assert file == tmp_path / "2026-12-01/costs-x-023005.json"
    written = json.loads(file.read_text())
    assert (written["commit"], written["date"], written["machine"]) == ("abc1234", BEGUN.isoformat(), {"cores": 2})
    assert written["printed"] == ["done"]
    (figure,) = written["figures"]
    assert (figure["value"], figure["low"], figure["high"], figure["runs"]) == (0.2, 0.1, 0.3, 3)
    assert (figure["target"], figure["met"]) == ("<= 0.25 s", True)
    (read,) = results.read_figures(tmp_path)
    assert (read.promise, read.value, read.date, read.command) == ("pause", 0.2, BEGUN.isoformat(), document["command"])


def test_a_promise_that_the_table_lacks_is_refused():
    with pytest.raises(KeyError):
        Recorder([PAUSE]).record("speed", 1.0)


@pytest.mark.parametrize(("value", "met"), [(0.25, True), (0.26, False)])
def test_a_value_meets_an_upper_bound_up_to_the_bound(value, met):
    assert PAUSE.is_met(value) is met


@pytest.mark.parametrize(("value", "met"), [(3.0, True), (2.9, False)])
def test_a_value_meets_a_lower_bound_from_the_bound_on(value, met):
    assert SPEED.is_met(value) is met


def test_the_newest_figure_of_a_promise_counts():
    old = Figure("pause", 0.2, "2026-11-30", "a", "c")
    new = Figure("pause", 0.3, "2026-12-01T02:30:05+00:00", "b", "c")
    assert results.newest([new, old]) == {"pause": new}


def test_the_page_marks_what_is_missed_imported_and_never_measured():
    figures = [
        Figure("pause", 0.3, "2026-11-30", "abc1234", PAUSE.command, low=0.28, high=0.31, origin="imported"),
        Figure("wall", 0.23, "2026-12-01T02:30:05+00:00", "abc1234", WALL.command),
    ]
    page = results_page([PAUSE, SPEED, WALL], results.newest(figures))
    assert "3 promises: 1 missed, 1 no target, 1 never measured." in page
    rows = [line for line in page.splitlines() if line.startswith("| ") and "Promise" not in line]
    assert rows == [
        "| A short pause | <= 0.25 s | **0.3 s (missed)** | 0.28 to 0.31 | 2026-11-30\\* | `costs/checkpoints` |",
        "| Fast steps | >= 3 x | **never measured** |  |  | `training/demo` |",
        "| Wall time | none | 0.23 |  | 2026-12-01 | `training/demo` |",
    ]


def test_each_figure_belongs_to_a_promise():
    known = {promise.id for promise in results.read_promises()}
    assert {figure.promise for figure in results.read_figures()} <= known


def test_each_recorded_promise_is_in_the_table():
    recorded = set()
    for script in (ROOT / "benchmarks").glob("*/*.py"):
        recorded |= set(re.findall(r'\brecord\("([\w-]+)"', script.read_text("utf-8")))
    assert recorded <= {promise.id for promise in results.read_promises()}
    assert len(recorded) > 20


@pytest.mark.parametrize("promise", results.read_promises(), ids=lambda promise: promise.id)
def test_the_command_of_a_promise_names_something_that_is_there(promise):
    words = promise.command.split()
    if words[:2] == ["python", "benchmarks"]:
        benchmarks = runpy.run_path(str(ROOT / "benchmarks"))["benchmarks"]()
        assert words[2] in {benchmark.name for benchmark in benchmarks}
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    else:
        assert words[0] in ("pytest", "trimtab")
        named = [word for word in words if "/" in word and not word.startswith("runs/")]
        assert named
        assert all((ROOT / name).exists() for name in named)


def test_a_benchmark_that_ends_well_leaves_its_figures(tmp_path):
    argv = [sys.executable, "benchmarks", "--results", tmp_path, "planning/planners", "--density", "0.01"]
    done = subprocess.run([*map(str, argv)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("*/planning-planners-*.json")
    document = json.loads(file.read_text())
    assert document["command"] == "python benchmarks planning/planners --density 0.01"
    assert [figure["promise"] for figure in document["figures"]] == ["safusion"]
    assert "\n".join(document["printed"]) + "\n" == done.stdout


def test_a_benchmark_that_only_shows_its_flags_leaves_nothing(tmp_path):
    argv = [sys.executable, "benchmarks", "--results", tmp_path, "costs/product_bench", "--help"]
    subprocess.run([*map(str, argv)], cwd=ROOT, capture_output=True, check=True, timeout=100)
    assert list(tmp_path.iterdir()) == []
