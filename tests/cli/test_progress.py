"""What a user sees while a run goes on."""

import io
import json

import pytest
from fake_runs import PHASES, decision, step_line, write_lines
from rich.console import Console
from trimtab.cli.progress import Progress
from trimtab.cli.run_view import RunView, sparkline
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.line_file import Tail


def test_a_tail_waits_for_the_end_of_a_line(tmp_path):
    path = tmp_path / "lines.jsonl"
    tail = Tail(path)
    assert list(tail.new_lines()) == []
    path.write_text('{"a": 1}\n{"b"')
    assert list(tail.new_lines()) == [{"a": 1}]
    with path.open("a") as file:
        file.write(": 2}\n")
    assert list(tail.new_lines()) == [{"b": 2}]
    assert list(tail.new_lines()) == []


def test_a_line_tells_step_loss_times_network_and_plan(tmp_path):
    directory = RunDirectory(tmp_path)
    view = RunView("adaptive", directory)
    assert view.line().endswith("state starting")
    directory.tell_starting("waiting for ranks 2 and 3 of 4 to join")
    assert view.line().endswith("state starting: waiting for ranks 2 and 3 of 4 to join")
    write_lines(
        directory.metrics,
        [
            step_line(41, 3.0, 0.08, "0.011/all-gather", PHASES[1], trial=False),
            {"event": "evaluation", "step": 41, "time": 3.0, "accuracy": 0.914},
        ],
    )
    view.read()
    facts = view.facts()
    assert facts["step"] == "41"
    assert facts["accuracy"] == "91.40%"
    assert facts["step time"] == "80ms"
    assert facts["latency"] == "25.5ms"
    assert facts["bandwidth"] == "970Mbps"
    assert facts["plan"] == "0.011/all-gather"
    assert "loss" in facts
    stale = step_line(42, 3.1, 0.08, "0.011/all-gather", PHASES[1], trial=False) | {"network_stale": True}
    with directory.metrics.open("a") as file:
        file.write(json.dumps(stale) + "\n")
    view.read()
    assert view.facts()["bandwidth"] == "970Mbps (stale)"


def test_a_terminal_shows_all_of_what_is_done_before_the_first_step(tmp_path):
    directory = RunDirectory(tmp_path)
    doing = "loading kernels, which are compiled the first time that a machine trains"
    directory.tell_starting(doing)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with Progress(num_runs=1, console=console) as progress:
        progress.start("adaptive", directory)
        progress.update()
    words = [word for word in screen.getvalue().replace("│", " ").split() if word.isalpha() or word == "kernels,"]
    assert doing in " ".join(words)


def test_a_terminal_shows_a_panel_with_the_last_reason(tmp_path):
    directory = RunDirectory(tmp_path)
    write_lines(
        directory.metrics, [step_line(i, 0.1 * i, 0.08, "dense-ring", PHASES[0], trial=False) for i in range(9)]
    )
    write_lines(directory.decisions, decision(0, 8, 0.8, "dense-ring", "0.011/all-gather", PHASES[1]))
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with Progress(num_runs=2, console=console) as progress:
        progress.start("adaptive", directory)
        progress.update()
    shown = screen.getvalue()
    for text in ("adaptive  run 1 of 2", "dense-ring", "latency rose to 25 ms: 0.011/all-gather sends", "█"):
        assert text in shown


def test_a_panel_and_a_line_tell_that_the_network_is_not_measured(tmp_path):
    directory = RunDirectory(tmp_path)
    write_lines(directory.metrics, [step_line(0, 0.1, 0.08, "dense-ring", PHASES[0], trial=False)])
    write_lines(directory.decisions, [{"record": "network", "time": 0.0, "problem": "all tests failed"}])
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with Progress(num_runs=1, console=console) as progress:
        progress.start("adaptive", directory)
        progress.update()
        assert "network NOT MEASURED: all tests failed" in progress._view.line()
    assert "NOT MEASURED: all tests failed" in screen.getvalue()


def test_a_panel_and_a_line_tell_of_steps_that_were_dropped(tmp_path):
    directory = RunDirectory(tmp_path)
    step = step_line(0, 0.1, 0.08, "dense-ring", PHASES[0], trial=False)
    write_lines(directory.metrics, [step, {**step, "finite": False, "dropped_by": "rank 1: weight"}])
    said = "1 of 2 steps were dropped, since a gradient was not finite (rank 1: weight)"
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with Progress(num_runs=1, console=console) as progress:
        progress.start("adaptive", directory)
        progress.update()
        assert f"dropped {said}" in progress._view.line()
        assert progress._view.figures()["dropped_steps"] == 1
    assert "1 of 2 steps were dropped" in screen.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_panel_never_cuts_the_name_of_a_plan(tmp_path, width):
    plan = "0.028/all-gather/fusion=single/schedule=after-backward/source=update:steps=16/wire=int8"
    write_lines(RunDirectory(tmp_path).metrics, [step_line(0, 0.1, 0.08, plan, PHASES[0], trial=False)])
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    with Progress(num_runs=1, console=console) as progress:
        progress.start("adaptive", RunDirectory(tmp_path))
        progress.update()
    assert plan in "".join(screen.getvalue().replace("│", " ").split())


def test_bars_stand_for_values_from_zero_to_the_largest():
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"


def test_what_a_rank_prints_is_shown_line_by_line_and_anew_after_a_restart(tmp_path):
    directory = RunDirectory(tmp_path)
    log = directory.log("rank-1")
    screen = io.StringIO()
    with Progress(num_runs=1, console=Console(file=screen, width=40), tail=1) as progress:
        progress.start("dense", directory)
        progress.update()
        assert screen.getvalue() == ""
        log.parent.mkdir()
        log.write_bytes(b"[red]one[/red] \xff\ntw")
        progress.update()
        assert screen.getvalue() == "[red]one[/red] \ufffd\n"
        with log.open("ab") as file:
            file.write(b"o" * 60 + b"\nthree")
        progress.update()
        assert screen.getvalue().splitlines()[1:] == ["tw" + "o" * 60]
        log.write_bytes(b"again\n")  # a restart's log is another file, and shorter
        progress.update()
        with log.open("ab") as file:
            file.write(b"the end")
        progress.end()
    assert screen.getvalue().splitlines()[2:] == ["again", "the end"]


def test_a_terminal_shows_network_plans_and_step_times_of_the_same_steps_beneath_each_other(tmp_path):
    directory = RunDirectory(tmp_path)
    steps = [step_line(i, 0.1 * i, 0.08, "dense-ring", PHASES[0], trial=False) | {"plan_version": 0} for i in range(4)]
    steps += [step_line(4, 0.4, 0.02, "0.01/all-gather", PHASES[1], trial=False) | {"plan_version": 1, "gain": 0.25}]
    write_lines(directory.metrics, steps)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with Progress(num_runs=1, console=console) as progress:
        progress.start("adaptive", directory)
        progress.update()
    shown = screen.getvalue()
    names = ("bandwidth", "changes", "step time")
    strips = {name: line for name in names for line in shown.splitlines() if name in line}
    assert strips["changes"].split()[2] == "────◆"
    assert strips["step time"].split()[3] == "████▃"
    assert len(strips["bandwidth"].split()[2]) == 5
    assert "0.25" in shown


def test_json_logs_are_objects_with_figures_in_base_units(tmp_path, monkeypatch):
    monkeypatch.setattr("trimtab.cli.progress.LINE_SECONDS", 0.0)
    directory = RunDirectory(tmp_path)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=20)
    with Progress(num_runs=1, console=console, tail=1, as_json=True) as progress:
        progress.start("adaptive", directory)
        progress.update()
        write_lines(directory.metrics, [step_line(41, 3.0, 0.08, "0.011/all-gather", PHASES[1], trial=False)])
        directory.log("rank-1").parent.mkdir()
        directory.log("rank-1").write_text('loss "[red]" 0.5\n')
        progress.update()
        progress.restart("restart 1 of at most 3")
    starting, output, running, message = map(json.loads, screen.getvalue().splitlines())
    assert (starting["event"], starting["state"]) == ("progress", "starting")
    assert (output["event"], output["rank"], output["line"]) == ("output", 1, 'loss "[red]" 0.5')
    assert (running["event"], running["step"], running["step_seconds"]) == ("progress", 41, 0.08)
    assert running["bandwidth_bytes_per_second"] == 0.97 * PHASES[1][2]
    assert (message["event"], message["message"]) == ("message", "restart 1 of at most 3")


def test_of_local_steps_the_mean_is_told_and_a_narrow_panel_shows_the_last_of_them_in_one_line(tmp_path):
    directory = RunDirectory(tmp_path)
    view = RunView("adaptive", directory)
    plan = "0.011/all-gather/source=update:steps=4"
    lines = [step_line(n, n, 0.1 if n % 4 else 0.5, plan, PHASES[1], trial=False) for n in range(40)]
    write_lines(directory.metrics, [line | {"compute_seconds": 0.1} for line in lines])
    view.read()
    assert (view.facts()["step time"], view.facts()["waiting"]) == ("200ms", "50% of it")
    screen = io.StringIO()
    Console(file=screen, width=20, color_system=None).print(view.render())
    (shown,) = (line for line in screen.getvalue().splitlines() if line.startswith("step time   "))
    assert shown.split()[2] == "█▂▂▂█▂▂▂"
