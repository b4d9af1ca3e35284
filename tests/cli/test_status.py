"""`trimtab status`: a run is followed from another terminal while it goes on."""

import json
import socket
import urllib.request

import pytest
from kit.run_processes import of_run, wait_until
from trimtab.cli.main import main
from trimtab.launch.environment.ports import free_ports


@pytest.mark.slow
def test_it_follows_a_run_to_its_end(toy_job, trimtab, tmp_path):
    run = trimtab("run", toy_job("--steps", "2000"), "--out", "out", "--plan", "0.01/all-gather")
    wait_until((tmp_path / "out/status.address").exists)
    status = trimtab("status", "out")
    output, errors = status.communicate(timeout=60)
    assert (status.returncode, errors) == (0, "")
    lines = output.splitlines()
    assert all(each.startswith("toy: ") for each in lines)
    assert lines[-1].startswith("toy: succeeded  step 2000  loss 0.0005  step time ")
    assert lines[-1].endswith("plan 0.01/all-gather since step 0: the job's communication policy is Static")
    assert run.wait(60) == 0
    assert not (tmp_path / "out/status.address").exists()


@pytest.mark.slow
def test_a_run_that_fails_is_said_with_its_cause(toy_job, trimtab, tmp_path):
    run = trimtab("run", toy_job("--forever", extra="restartPolicy: Never"), "--out", "out")
    wait_until((tmp_path / "out/status.address").exists)
    status = trimtab("status", "out", "--json")
    assert json.loads(status.stdout.readline())["state"] in ("STATE_STARTING", "STATE_RUNNING")
    wait_until((tmp_path / "out/started").exists)
    rank = next(each for each in of_run(tmp_path / "out") if each.environ().get("RANK") == "1")
    rank.kill()
    output, _ = status.communicate(timeout=60)
    assert run.wait(60) == 1
    assert status.returncode == 1
    last = json.loads(output.splitlines()[-1])
    assert (last["job"], last["state"], last["num_ranks"]) == ("toy", "STATE_FAILED", 3)
    assert last["message"].startswith("rank 1 ended with signal SIGKILL")


def test_once_says_what_is_now_and_prometheus_hears_the_same(toy_job, trimtab, tmp_path):
    (port,) = free_ports(1)
    trimtab("run", toy_job("--forever", "--steps", "7"), "--out", "out", "--metrics-port", str(port))
    wait_until((tmp_path / "out/status.address").exists)

    def step():
        status = trimtab("status", "out", "--once", "--json")
        return json.loads(status.communicate(timeout=60)[0]).get("step")

    wait_until(lambda: step() == "7")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    assert "trimtab_trainer_steps_total 7.0" in lines
    assert any(line.startswith("trimtab_trainer_plan_info{") for line in lines)


def test_a_port_for_metrics_that_is_taken_is_refused_before_anything_starts(toy_job, trimtab, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        run = trimtab("run", toy_job(), "--out", "out", "--metrics-port", port)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 2
    assert errors.startswith(f"trimtab: --metrics-port: '{port}': cannot listen there (Address already in use);")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "trimtab: RUN: name a run directory, such as runs/digits\n"),
        (["nowhere"], "trimtab: RUN: 'nowhere': no run goes on there; `trimtab report` shows one that has ended\n"),
    ],
)
def test_no_run_is_one_line_and_exit_code_2(trimtab, arguments, message):
    status = trimtab("status", *arguments)
    assert status.communicate(timeout=60) == ("", message)
    assert status.returncode == 2


def test_an_address_that_is_not_written_yet_is_no_run(tmp_path, capsys):
    (tmp_path / "status.address").touch()
    assert main(["status", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"trimtab: RUN: '{tmp_path}': no run goes on there; `trimtab report` shows one that has ended\n"
    )
