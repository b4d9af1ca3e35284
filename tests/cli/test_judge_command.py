"""`trimtab judge`, without its real runs: docs/measurements/judge.md has those."""

import json
import shutil

import pytest
from fake_runs import write_run
from trimtab.cli import judge_command, preparation
from trimtab.cli.main import main
from trimtab.judge import simulation, workloads
from trimtab.judge.recorded import Recorded
from trimtab.judge.simulation import SimulatedCell
from trimtab.judge.workloads import Workload
from trimtab.launch import run
from trimtab.launch.interrupts import Interrupted
from trimtab.records.result import RunResult
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


def test_an_interrupted_judge_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    """Training is faked; the command, what it keeps and how it tells one run from another are as they are."""
    began, interrupted_at = [], 10

    def train(request, observe):
        with request.directory.held():
            request.directory.prepare()
            request.directory.write_job(request.job)
            shutil.copyfile(request.network, request.directory.network)
            began.append(request.directory.path)
            if len(began) == interrupted_at:
                raise Interrupted
            write_run(request.directory.path, request.plan, 0.2, 20)
            request.directory.write_job(request.job)
            result = RunResult.of("target", "", plan=request.plan, began=0.0, emulated=True)
            request.directory.write_result(result)
            with request.directory.metrics.open("a") as metrics:
                print(json.dumps({"event": "evaluation", "step": 100, "time": 20.0, "loss": 0.01}), file=metrics)
        return result

    monkeypatch.setattr(run, "run", train)
    monkeypatch.setattr(preparation, "choose_network", lambda file, loopback, num_workers: file)
    argv = ["judge", "--out", str(tmp_path / "out"), "--quick"]
    assert main(argv) == 130
    assert "The same command goes on from here" in capsys.readouterr().err
    finished = began[: interrupted_at - 1]
    cells = json.loads((tmp_path / "out" / "judge.json").read_text())["cells"]
    assert sum(bool(cell["measured"]) for cell in cells) == 1, "the first cell was whole"
    assert main(argv) == 0
    assert began[interrupted_at] == began[interrupted_at - 1], "what was cut off comes again, and first"
    assert not set(finished) & set(began[interrupted_at:])
    cells = json.loads((tmp_path / "out" / "judge.json").read_text())["cells"]
    assert sum(bool(cell["measured"]) for cell in cells) == 3
