"""Ctrl-C ends every command with exit code 130 whenever it comes, and nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from kit.run_processes import is_gone, of_run, wait_until

INTERRUPTING = Path(__file__).parent / "interrupting.py"
PLAN = ["plan", "--parameters=1M", "--workers=4", "--latency=1ms", "--bandwidth=1Gbps"]
RUN = ["run", "job.yaml", "--out", "out"]
COMPARE = ["compare", "job.yaml", "--plans", "dense", "--out", "out"]
#: Seconds: generous, because every other test may be running beside this one.
PATIENCE = 120


def interrupted(point: str, arguments: list[str], directory: Path) -> tuple[int, str]:
    """The exit code, and what was said on stderr."""
    argv = [sys.executable, str(INTERRUPTING), point, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=directory)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("point", "arguments"),
    [
        *(("argparse", arguments) for arguments in (["--help"], ["bench", "step"], RUN)),
        ("trimtab.plan.plan", PLAN),
        ("_choose", PLAN),
        ("trimtab_netmon.emulate", ["network", "--seed", "1"]),
        ("rich.console", ["report", "out"]),
        ("grpc", ["status", "out"]),
        ("pydantic", RUN),
        ("trimtab.report.comparison", COMPARE),
        ("load_training_job", COMPARE),
        ("torch", ["bench", "kernels"]),
    ],
)
def test_a_command_that_has_made_nothing_ends_at_once(toy_job, tmp_path, point, arguments):
    toy_job("--steps", "1")
    assert interrupted(point, arguments, tmp_path) == (130, "trimtab: interrupted\n")
    assert {each.name for each in tmp_path.iterdir()} == {"job.yaml"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "RunDirectory.held",
        "RunDirectory.prepare",
        "free_ports",
        *(f"fork_exec#{number}" for number in (1, 2, 4, 5, 6)),
        "Children.temporary_directory",
        "RunDirectory.tell_status_address",
        "Supervisor.wait",
        "Children.collect#40",
        "RunView.read",
    ],
)
def test_a_launcher_leaves_nothing_wherever_it_is(toy_job, tmp_path, point):
    toy_job("--forever", workers=2)
    code, errors = interrupted(point, RUN, tmp_path)
    assert (code, errors) == (130, "trimtab: interrupted; nothing is left running\n")
    assert of_run(tmp_path / "out") == []
    assert not (tmp_path / "out/status.address").exists()
    assert json.loads((tmp_path / "out/result.json").read_text())["state"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["ForkServer.start", "fork_exec#2", "ForkServer.fork", "_pid", "ForkedProcess.release"]
)
def test_launcher_with_a_fork_server_leaves_nothing(toy_job, tmp_path, monkeypatch, point):
    job = toy_job("--forever", workers=2)
    monkeypatch.setenv("TRIMTAB_PRELOAD", "1")
    code, errors = interrupted(point, ["run", job, "--out", "out"], tmp_path)
    assert (code, errors) == (130, "trimtab: interrupted; nothing is left running\n")
    wait_until(lambda: of_run(tmp_path / "out") == [])  # a rank that was not released ends by itself
    assert json.loads((tmp_path / "out/result.json").read_text())["state"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("point", ["Supervisor.let_status_tell", "summarise", "read_comparison", "render_page"])
def test_at_a_comparisons_end_too_and_what_was_finished_is_whole(toy_job, tmp_path, point):
    toy_job("--steps", "2", workers=1)
    code, errors = interrupted(point, COMPARE, tmp_path)
    assert code == 130
    assert errors.endswith("--resume keeps the finished runs\n")
    assert json.loads((tmp_path / "out/dense/result.json").read_text())["state"] == "succeeded"
    if point in ("read_comparison", "render_page"):
        assert (tmp_path / "out/report.html").read_text().endswith("</html>\n")


@pytest.mark.slow
@pytest.mark.namespaces
@pytest.mark.parametrize("point", ["add#2", "Relay.__init__", "_wait"])
def test_a_bench_leaves_no_namespace(tmp_path, point):
    argv = [sys.executable, str(INTERRUPTING), point, "bench", "step", "--workers", "2"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (130, "trimtab: interrupted\n")
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert [line for line in listed.splitlines() if line.startswith(f"trimtab-bench-{process.pid}-")] == []


@pytest.mark.slow
def test_a_reaper_that_is_slow_to_end_makes_no_failure_of_it(toy_job, trimtab, tmp_path):
    process = trimtab("compare", toy_job("--forever"), "--out", "out")
    launcher = psutil.Process(process.pid)

    def reaper() -> psutil.Process | None:
        return next((child for child in launcher.children() if "reaper.py" in " ".join(child.cmdline())), None)

    wait_until(lambda: reaper() is not None)
    stopped = reaper()
    stopped.suspend()
    process.send_signal(signal.SIGINT)
    try:
        assert process.wait(PATIENCE) == 130
        assert of_run(tmp_path / "out" / "adaptive") == []
    finally:
        stopped.resume()
    wait_until(lambda: is_gone(stopped))


@pytest.mark.slow
def test_a_run_under_nohup_survives_the_terminal(toy_job, tmp_path):
    job = toy_job("--steps", "1", workers=1)
    argv = [sys.executable, str(INTERRUPTING), "nothing", "run", job, "--out", "out"]
    process = subprocess.Popen(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    wait_until((tmp_path / "out" / "lock").exists)
    os.kill(process.pid, signal.SIGHUP)
    process.communicate(timeout=PATIENCE)
    assert json.loads((tmp_path / "out" / "result.json").read_text())["state"] == "succeeded"
