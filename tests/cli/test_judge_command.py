"""`trimtab judge`, without its real runs: docs/measurements/judge.md has those."""

import json

from trimtab.cli import judge_command
from trimtab.cli.main import main
from trimtab.judge import workloads


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
