"""`trimtab judge`, without its real runs; `python benchmarks training/judge` makes those."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import PHASES, step_line, write_run
from trimtab.cli import judge_command, preparation
from trimtab.cli.main import main
from trimtab.evaluation.judge import simulation, workloads
from trimtab.evaluation.judge.recorded import Recorded
from trimtab.evaluation.judge.simulation import SimulatedCell
from trimtab.evaluation.judge.workloads import Workload
from trimtab.launch.local import run
from trimtab.launch.local.run import RunRequest
from trimtab.launch.processes.interrupts import Interrupted
from trimtab.launch.processes.supervisor import Ending
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.schema import RunResult
from trimtab_netmon.emulate import Network


@pytest.fixture(scope="module")
def simulated() -> dict[tuple[str, str], SimulatedCell]:
    """What was simulated before, by workload and network."""
    return {}


@pytest.fixture(autouse=True)
def simulated_once(monkeypatch, simulated):
    """Tests share what is simulated: it takes seconds, and is the same each time."""
    simulate = simulation.simulate

    def look_up(workload: Workload, network: Network, recorded: Recorded) -> SimulatedCell:
        cell = (workload.name, str(network))
        if cell not in simulated:
            simulated[cell] = simulate(workload, network, recorded)
        return simulated[cell]

    monkeypatch.setattr(simulation, "simulate", look_up)


def test_the_simulated_matrix_is_printed_kept_and_drawn(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(workloads, "WORKLOADS", workloads.WORKLOADS[:1])
    assert main(["judge", "--out", str(tmp_path / "out"), "--simulate"]) == 0
    told = json.loads((tmp_path / "out" / "judge.json").read_text())
    assert [cell["network"] for cell in told["cells"]] == ["C1", "C2", "demo", "fast", "far", "random"]
    for cell in told["cells"]:
        times = cell["simulated"]
        adaptive = times.pop("adaptive")
        assert abs(adaptive / min(times.values()) - cell["simulated_over_best_static"]) < 1e-3
        assert cell["measured"] == {}
    output = capsys.readouterr().out
    assert "are left out there" in output
    assert all(f"digits on {cell['network']}" in output for cell in told["cells"])
    page = (tmp_path / "out" / "judge.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("for the best static plan, adaptive") == 6
    assert "http" not in page.replace("http://www.w3.org", "")


def test_out_must_be_a_directory(tmp_path, capsys):
    (tmp_path / "out").touch()
    assert main(["judge", "--out", str(tmp_path / "out"), "--simulate"]) == 2
    assert "--out: " in capsys.readouterr().err


def test_every_cell_has_its_first_turn_before_any_has_its_second(tmp_path, monkeypatch):
    taken = []

    def measure(cell, network, directory, *, turns):
        taken.append((cell.name, turns))
        return cell, ""

    monkeypatch.setattr(judge_command, "_measure", measure)
    assert main(["judge", "--out", str(tmp_path / "out"), "--quick", "--turns", "2"]) == 0
    cells = [name for name, turn in taken if turn == 1]
    assert len(cells) == 3
    assert taken == [(name, turn) for turn in (1, 2) for name in cells]


@pytest.fixture
def training(monkeypatch):
    """Training is faked; the command, what it keeps and how it tells one run from another are as they are.

    It is called with a run's request, writes what the run leaves, and says in which state it ended.
    """

    def use(train: Callable[[RunRequest, Callable[[], Ending | None]], str]) -> None:
        def run_job(request: RunRequest, observe: Callable[[], Ending | None]) -> RunResult:
            with request.directory.held():
                request.directory.prepare()
                shutil.copyfile(request.network, request.directory.network)
                state = train(request, observe)
                request.directory.write_job(request.job)
                result = RunResult(state, plan=request.plan, emulated=True, valid=True)
                request.directory.write_result(result)
            return result

        monkeypatch.setattr(run, "run", run_job)
        monkeypatch.setattr(preparation, "choose_network", lambda file, loopback, num_workers: file)

    return use


def evaluate(directory: RunDirectory, seconds: float, loss: float) -> None:
    with directory.metrics.open("a") as metrics:
        print(json.dumps({"event": "evaluation", "step": 100, "time": seconds, "loss": loss}), file=metrics)


def cells_of(out: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads((out / "judge.json").read_text())["cells"]
    return [cell for cell in cells if cell["measured"]]


def test_an_interrupted_judge_goes_on_where_it_was(tmp_path, capsys, training):
    began, interrupted_at = [], 10

    def train(request, observe):
        began.append(request.directory.path)
        if len(began) == interrupted_at:
            raise Interrupted
        write_run(request.directory.path, request.plan, 0.2, 20)
        evaluate(request.directory, 20.0, 0.01)
        return "target"

    training(train)
    argv = ["judge", "--out", str(tmp_path / "out"), "--quick"]
    assert main(argv) == 130
    assert "The same command goes on from here" in capsys.readouterr().err
    finished = began[: interrupted_at - 1]
    assert len(cells_of(tmp_path / "out")) == 1, "the first cell was whole"
    assert main(argv) == 0
    assert began[interrupted_at] == began[interrupted_at - 1], "what was cut off comes again, and first"
    assert not set(finished) & set(began[interrupted_at:])
    assert len(cells_of(tmp_path / "out")) == 3


def test_what_takes_three_times_as_long_as_adaptive_is_given_up_and_bounds_the_ratio(tmp_path, capsys, training):
    began = []

    def train(request, observe):
        began.append(request.directory.path)
        seconds = {"adaptive": 10.0, "dense": 100.0}.get(request.plan, 29.0)
        write_run(request.directory.path, request.plan, 0.2, min(seconds, 28.0))
        if seconds > 30.0:
            assert observe() is None, "it has just not trained for longer yet"
            with request.directory.metrics.open("a") as metrics:
                print(json.dumps(step_line(500, 32.0, 2.0, "dense", PHASES[0], trial=False)), file=metrics)
        else:
            evaluate(request.directory, seconds, 0.01)
        return observe().state

    training(train)
    argv = ["judge", "--out", str(tmp_path / "out"), "--quick"]
    assert main(argv) == 0
    for cell in cells_of(tmp_path / "out"):
        assert (cell["measured"]["dense"], cell["measured_given_up"]) == ([32.0], ["dense"])
        assert cell["measured_over_dense"] == pytest.approx(10 / 32)
        assert cell["measured_over_best_static"] == cell["measured_over_best_hook"] == pytest.approx(10 / 29, abs=1e-4)
    output = capsys.readouterr().out
    assert output.count("dense: ") == output.count(", given up") == 3
    assert output.count("<0.31×") >= 3
    assert "given up after 32s" in (tmp_path / "out" / "judge.html").read_text()
    assert main(argv) == 0
    assert len(began) == len(set(began)), "what was given up is kept, as all else"


def test_each_turn_begins_with_another_plan(tmp_path, training):
    began = []

    def train(request, observe):
        began.append(request.directory.path)
        write_run(request.directory.path, request.plan, 0.2, 10)
        evaluate(request.directory, 10.0, 0.01)
        return "target"

    training(train)
    assert main(["judge", "--out", str(tmp_path / "out"), "--quick", "--turns", "3"]) == 0
    names = [path.name for path in began if path.parent.name == "digits-on-C1"]
    second, third = ([name[:-2] for name in names if name.endswith(end)] for end in (".2", ".3"))
    first = [name for name in names if not name.endswith((".2", ".3"))]
    assert sorted(first) == sorted(second) == sorted(third)
    assert first[0] == "adaptive"
    assert len({first[0], second[0], third[0]}) == 3
