"""`trimtab run` with real processes and real sockets: how a run goes, and how it ends."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from kit.run_processes import is_gone, monitors_of, of_run, offspring_until, wait_until
from trimtab.cli.preparation import choose_network
from trimtab.cli.run_command import max_restarts, refuse_taken_ports
from trimtab.launch.environment.ports import free_ports
from trimtab.plan.names import with_plan
from trimtab_api.errors import UserError
from trimtab_api.trainingjob import load_training_job

RESTARTS = "restartPolicy: OnFailure"


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def test_every_rank_meets_the_others_and_the_files_are_there(toy_job, trimtab, tmp_path):
    code, output, _ = end(trimtab("run", toy_job("--steps", "5"), "--out", "out"))
    assert code == 0
    assert output.startswith("adaptive: 5 steps in ")
    assert "accuracy 98.00%, target after" in output
    out = tmp_path / "out"
    for rank in range(3):
        assert (out / "logs" / f"rank-{rank}.log").read_text() == f"rank {rank} of 3 says hello\n"
        assert (out / "logs" / f"monitor-{rank}.log").exists()
    result = json.loads((out / "result.json").read_text())
    assert (result["state"], result["plan"], result["emulated"]) == ("succeeded", "adaptive", False)
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 6


def test_what_a_rank_prints_is_shown_on_demand(toy_job, trimtab, tmp_path):
    code, output, _ = end(trimtab("run", toy_job("--steps", "5"), "--out", "out", "--tail", "2"))
    assert code == 0
    assert output.splitlines()[0] == "rank 2 of 3 says hello"
    code, output, errors = end(trimtab("run", tmp_path / "job.yaml", "--out", "other", "--tail", "3"))
    assert (code, output) == (2, "")
    assert errors == "trimtab: --tail: '3': is no rank of the job, which has 3; name one from 0 to 2\n"
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_run_replaces_the_one_before_it_and_nothing_else(toy_job, trimtab, tmp_path):
    out = tmp_path / "out"
    (out / "logs").mkdir(parents=True)
    (out / "logs" / "rank-9.log").write_text("old")
    (out / "notes.txt").write_text("mine")
    code, *_ = end(trimtab("run", toy_job("--steps", "1"), "--out", "out", "--plan", "0.01/all-gather"))
    assert code == 0
    assert not (out / "logs" / "rank-9.log").exists()
    assert (out / "notes.txt").read_text() == "mine"
    assert json.loads((out / "result.json").read_text())["plan"] == "0.01/all-gather"


@pytest.mark.parametrize(
    ("arguments", "how"), [(["--die-code", "3"], "exit code 3"), (["--die-signal"], "signal SIGKILL")]
)
def test_a_rank_that_dies_ends_the_run_by_name_where_the_job_asks_for_no_restarts(
    toy_job, trimtab, tmp_path, arguments, how
):
    code, output, errors = end(trimtab("run", toy_job("--die-rank", "1", *arguments), "--out", "out"))
    assert (code, output) == (1, "")
    assert errors.splitlines() == [
        f"trimtab: rank 1 ended with {how}; its log is out/logs/rank-1.log, and ends with",
        "    rank 1 of 3 says hello",
        "    the dog ate my gradient",
    ]
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (result["state"], result["restarts"]) == ("failed", 0)
    assert not (tmp_path / "out" / "attempts").exists()
    assert of_run(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("written", "restarts"),
    [
        ("", 0),
        ("restartPolicy: OnFailure", 3),
        ("maxRestarts: 2", 2),
        ("restartPolicy: Never", 0),
        ("{restartPolicy: Never, maxRestarts: 2}", 0),
    ],
)
@pytest.mark.parametrize("plan", [None, "dense"])
def test_ranks_restart_here_as_often_as_the_file_says_and_else_never(toy_job, written, restarts, plan):
    job = load_training_job(toy_job("--forever", extra=written.strip("{}").replace(", ", "\n  ")))
    assert max_restarts(job if plan is None else with_plan(job, plan)) == restarts


def test_all_ranks_restart_together_and_the_user_is_told_why(toy_job, trimtab, tmp_path):
    out = tmp_path / "out"
    job = toy_job("--die-rank", "1", "--die-once", str(tmp_path / "died"), "--steps", "5", extra=RESTARTS)
    code, output, errors = end(trimtab("run", job, "--out", "out"))
    assert (code, errors) == (0, "")
    assert output.splitlines()[:3] == [
        "restart 1 of at most 3, all ranks from the beginning, in 0.5 s: rank 1 ended with exit code 3; "
        "its log is out/attempts/0/logs/rank-1.log, and ends with",
        "    rank 1 of 3 says hello",
        "    the dog ate my gradient",
    ]
    assert "adaptive: 5 steps in " in output
    for rank in range(3):
        assert (out / "logs" / f"rank-{rank}.log").read_text() == f"rank {rank} of 3 says hello\n"
    result = json.loads((out / "result.json").read_text())
    assert (result["state"], result["restarts"]) == ("succeeded", 1)
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 6  # of the last attempt alone
    assert of_run(out) == []


@pytest.mark.slow
def test_when_no_restart_is_left_the_failure_is_final(toy_job, trimtab, tmp_path):
    out = tmp_path / "out"
    job = toy_job("--die-rank", "0", extra="maxRestarts: 2")
    code, output, errors = end(trimtab("run", job, "--out", "out"))
    assert code == 1
    assert [line.split(",")[0] for line in output.splitlines() if "restart" in line] == [
        "restart 1 of at most 2",
        "restart 2 of at most 2",
    ]
    assert errors.startswith(
        "trimtab: after 2 restarts, the most that spec.maxRestarts allows: rank 0 ended with exit code 3"
    )
    assert sorted(each.name for each in (out / "attempts").iterdir()) == ["0", "1"]
    assert json.loads((out / "result.json").read_text())["restarts"] == 2
    assert of_run(out) == []


@pytest.mark.slow
def test_two_restarts_in_a_row_that_fail_before_their_first_step_are_the_last(toy_job, trimtab, tmp_path):
    code, _, errors = end(trimtab("run", toy_job("--die-rank", "0", extra="maxRestarts: 1000"), "--out", "out"))
    assert code == 1
    assert "after 2 restarts, the last 2 of which failed before their first step" in errors
    assert json.loads((tmp_path / "out" / "result.json").read_text())["restarts"] == 2


def test_steps_that_a_full_disk_did_not_record_count_as_steps(toy_job, trimtab):
    dying = ("--die-rank", "0", "--die-after-steps", "--full-disk", "--steps", "1")
    code, _, errors = end(trimtab("run", toy_job(*dying, extra="maxRestarts: 3"), "--out", "out"))
    assert code == 1
    assert "after 3 restarts, the most that spec.maxRestarts allows: rank 0 ended with exit code 3" in errors


@pytest.mark.slow
def test_a_new_run_forgets_the_attempts_of_the_one_before(toy_job, trimtab, tmp_path):
    job = toy_job("--die-rank", "1", "--die-once", str(tmp_path / "died"), "--steps", "1", extra=RESTARTS)
    for _ in range(2):
        code, *_ = end(trimtab("run", job, "--out", "out"))
        assert code == 0
    assert not (tmp_path / "out" / "attempts").exists()


@pytest.mark.slow
def test_the_deadline_counts_from_the_first_attempt(toy_job, trimtab, tmp_path):
    dying = ("--die-rank", "0", "--die-after-steps", "--steps", "1")
    job = toy_job(*dying, extra="activeDeadlineSeconds: 10\n  maxRestarts: 1000")
    code, _, errors = end(trimtab("run", job, "--out", "out"))
    assert code == 1
    assert "ran longer than spec.activeDeadlineSeconds (10 s)" in errors
    assert json.loads((tmp_path / "out" / "result.json").read_text())["restarts"] > 0


@pytest.mark.slow
def test_the_deadline_ends_the_run(toy_job, trimtab, tmp_path):
    code, _, errors = end(trimtab("run", toy_job("--forever", extra="activeDeadlineSeconds: 1"), "--out", "out"))
    assert code == 1
    assert "ran longer than spec.activeDeadlineSeconds (1 s)" in errors
    assert json.loads((tmp_path / "out" / "result.json").read_text())["state"] == "deadline"
    assert of_run(tmp_path / "out") == []


def all_of_run(launcher, out):
    """The processes of a run once all have started: three ranks, their children, three monitors."""

    def running():
        return of_run(out) + monitors_of(psutil.Process(launcher.pid))

    wait_until(lambda: (out / "started").exists() and len(running()) == 9)
    return running()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_running(toy_job, trimtab, tmp_path, number):
    out = tmp_path / "out"
    process = trimtab("run", toy_job("--forever", "--child"), "--out", "out")
    running = all_of_run(process, out)
    process.send_signal(number)
    code, _, errors = end(process)
    assert code == 130
    assert errors == "trimtab: interrupted; nothing is left running\n"
    assert all(is_gone(each) for each in running)
    assert json.loads((out / "result.json").read_text())["state"] == "interrupted"


@pytest.mark.slow
def test_a_monitor_that_is_killed_is_started_again_and_training_goes_on(toy_job, trimtab, tmp_path):
    out = tmp_path / "out"
    process = trimtab("run", toy_job("--forever", "--child"), "--out", "out")
    running = all_of_run(process, out)
    monitors_of(psutil.Process(process.pid))[0].kill()
    wait_until(lambda: sum(is_gone(each) for each in running) == 1)
    wait_until(lambda: len(monitors_of(psutil.Process(process.pid))) == 3)
    assert len([each for each in running if not is_gone(each)]) == 8
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == 130


@pytest.mark.slow
def test_processes_die_with_a_launcher_that_is_killed(toy_job, trimtab, tmp_path):
    out = tmp_path / "out"
    process = trimtab("run", toy_job("--forever", "--child"), "--out", "out")
    running = all_of_run(process, out)
    socket = Path((out / "status.address").read_text().strip().removeprefix("unix:"))
    assert socket.parent.is_dir()
    process.kill()
    wait_until(lambda: all(is_gone(each) for each in running))
    wait_until(lambda: not socket.parent.exists())


def test_the_command_is_expanded_and_runs_in_its_working_directory(tmp_path, trimtab):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "say.py").write_text("import os, sys; print(os.getcwd(), *sys.argv[1:], os.environ['BOTH'])")
    (tmp_path / "job.yaml").write_text(f"""\
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata: {{name: said}}
spec:
  workers: 2
  template:
    spec:
      containers:
        - name: trainer
          command: [python, $(SCRIPT)]
          args: [$(JOB_COMPLETION_INDEX), $$(SCRIPT), $(UNKNOWN)]
          workingDir: {tmp_path}/there
          env:
            - {{name: SCRIPT, value: say.py}}
            - {{name: BOTH, value: $(SCRIPT)+$(LATER)}}
            - {{name: LATER, value: "1"}}
""")
    code, _, errors = end(trimtab("run", "job.yaml", "--out", "out"))
    assert code == 0
    assert errors.startswith(
        "trimtab: job.yaml: spec.template.spec.containers[trainer].env[1].value: $(LATER) stays as it is written"
    )
    assert errors.count("\n") == 1
    for worker in range(2):
        said = (tmp_path / "out" / "logs" / f"rank-{worker}.log").read_text()
        assert said == f"{tmp_path}/there {worker} $(SCRIPT) $(UNKNOWN) say.py+$(LATER)\n"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("workingDir: /nowhere", "workingDir: '/nowhere': is no directory here; make it, or remove the field"),
        ("workingDir: there, command: [./missing]", "command: './missing': no such file here; the command runs in "),
        ("envFrom: [{secretRef: {name: s}}]", "envFrom: needs a cluster; give the values in env to run here"),
    ],
)
def test_what_this_machine_lacks_is_named(tmp_path, trimtab, lines, told):
    (tmp_path / "there").mkdir()
    command = "" if "command" in lines else "command: [python], "
    (tmp_path / "job.yaml").write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: lost}\nspec:\n  workers: 1\n"
        f"  template: {{spec: {{containers: [{{name: trainer, {command}{lines}}}]}}}}\n"
    )
    code, _, errors = end(trimtab("run", "job.yaml", "--out", "out"))
    assert code == 2
    assert errors.startswith(f"trimtab: job.yaml: spec.template.spec.containers[trainer].{told}")
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.namespaces
class TestOnAnEmulatedNetwork:
    NETWORK = (
        "apiVersion: trimtab.dev/v1alpha1\nkind: Network\nphases:\n"
        "  - {duration: 200ms, latency: 2ms, bandwidth: 100Mbps}\n"
        "  - {duration: 60s, latency: 5ms, bandwidth: 1Gbps, links: [{from: 0, to: 1, latency: 9ms}]}\n"
    )

    @pytest.fixture
    def network(self, tmp_path):
        path = tmp_path / "net.yaml"
        path.write_text(self.NETWORK)
        return path

    @staticmethod
    def namespaces() -> set[str]:
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        return {line.split()[0] for line in listed.splitlines()}

    def test_workers_meet_over_it_and_its_phases_are_written_down(self, toy_job, trimtab, network, tmp_path):
        code, _, errors = end(trimtab("run", toy_job("--steps", "40"), "--network", network, "--out", "out"))
        result = json.loads((tmp_path / "out" / "result.json").read_text())
        warning = "the emulator could not keep up with the network; the times of this run are not valid\n"
        assert (code, errors) == (0, "" if result["valid"] else warning)
        lines = [json.loads(line) for line in (tmp_path / "out" / "network.jsonl").read_text().splitlines()]
        assert [line["latency"] for line in lines] == pytest.approx([0.002, 0.009])  # the slowest link's
        assert [line["bandwidth"] for line in lines] == pytest.approx([12.5e6, 125e6])
        assert 0 <= lines[0]["time"] < 0.2 <= lines[1]["time"]
        assert result["emulated"] is True
        assert result["valid"] is result["relay"]["valid"]
        assert (tmp_path / "out" / "network.yaml").read_text() == self.NETWORK

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_no_process_and_no_namespace_outlives_it(self, toy_job, trimtab, network, tmp_path, number):
        out = tmp_path / "out"
        process = trimtab("run", toy_job("--forever", "--child"), "--network", network, "--out", "out")
        wait_until((out / "started").exists)
        mine = {name for name in self.namespaces() if f"-{process.pid}-" in name}
        assert len(mine) == 3
        running = of_run(out) + monitors_of(psutil.Process(process.pid))
        assert len(running) == 9
        process.send_signal(number)
        process.wait(timeout=30)
        wait_until(lambda: all(is_gone(each) for each in running) and not mine & self.namespaces())

    @pytest.mark.parametrize(
        ("death", "how"), [(["--die-code", "3"], "exit code 3"), (["--die-signal"], "signal SIGKILL")]
    )
    def test_a_worker_that_dies_takes_all_of_the_run_along(self, toy_job, trimtab, network, tmp_path, death, how):
        out = tmp_path / "out"
        job = toy_job("--die-rank", "1", *death, "--child", extra="restartPolicy: Never")
        process = trimtab("run", job, "--network", network, "--out", "out")
        log = out / "logs" / "rank-1.log"

        def has_died() -> bool:
            return log.exists() and "the dog ate my gradient" in log.read_text()

        processes = offspring_until(has_died, psutil.Process(process.pid))
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 1
        assert errors.splitlines() == [
            f"trimtab: rank 1 ended with {how}; its log is out/logs/rank-1.log, and ends with",
            "    rank 1 of 3 says hello",
            "    the dog ate my gradient",
        ]
        assert len(processes) > 9  # three ranks, their children, three monitors, the relay
        assert all(is_gone(each) for each in processes)
        assert of_run(out) == []
        assert not any(f"-{process.pid}-" in name for name in self.namespaces())

    def test_a_network_that_breaks_ends_the_run(self, toy_job, trimtab, network, tmp_path):
        process = trimtab("run", toy_job("--forever"), "--network", network, "--out", "out")
        wait_until((tmp_path / "out" / "started").exists)
        relays = [each for each in psutil.Process(process.pid).children() if "relay" in each.exe()]
        assert len(relays) == 1
        relays[0].kill()
        code, _, errors = end(process)
        assert code == 1
        assert errors.startswith("trimtab: the emulated network ended: ")

    def test_loopback_is_a_choice(self, toy_job, trimtab, network, tmp_path):
        arguments = ("--network", network, "--loopback", "--out", "out")
        code, _, errors = end(trimtab("run", toy_job("--steps", "1"), *arguments))
        assert (code, errors) == (0, "")
        assert json.loads((tmp_path / "out" / "result.json").read_text())["emulated"] is False

    def test_a_tun_device_that_is_there_and_dead_is_as_good_as_none(self, toy_job, network, tmp_path):
        os.mknod(tmp_path / "dead", stat.S_IFCHR | 0o666, os.makedev(120, 200))  # a number that no driver has
        script = f'mount --bind {tmp_path}/dead /dev/net/tun && exec "$@"'  # in mounts of its own, gone with it
        argv = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "trimtab"]
        argv += ["run", toy_job("--steps", "1"), "--network", network, "--out", "out"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == 0
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith(
            f"trimtab: on loopback, without the network of {network}: the network emulator cannot make a TUN device"
        )
        assert json.loads((tmp_path / "out" / "result.json").read_text())["emulated"] is False


@pytest.mark.parametrize("out", ["taken", "taken/deeper", "/proc/nothing"])
def test_a_directory_that_cannot_be_written_is_named(toy_job, trimtab, tmp_path, out):
    (tmp_path / "taken").write_text("mine")
    process = trimtab("run", toy_job("--steps", "2"), "--loopback", "--out", out)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert len(errors.splitlines()) == 1
    assert errors.startswith(f"trimtab: --out: '{out}': cannot be written")
    assert (tmp_path / "taken").read_text() == "mine"


def test_ports_leave_the_one_above_each_to_its_monitor():
    for _ in range(20):
        ports = free_ports(40)
        assert len({*ports, *(port + 1 for port in ports)}) == 80


def test_without_what_the_emulator_needs_it_runs_on_loopback_and_says_so(monkeypatch, tmp_path, capsys):
    from trimtab.cli import preparation

    network = tmp_path / "net.yaml"
    network.write_text(TestOnAnEmulatedNetwork.NETWORK)
    monkeypatch.setattr(preparation, "why_not_emulated", lambda: "it needs root; run with sudo")
    assert preparation.choose_network(network, loopback=False, num_workers=3) is None
    said = capsys.readouterr().err
    assert said == f"trimtab: on loopback, without the network of {network}: it needs root; run with sudo\n"


def test_more_workers_than_the_emulator_joins_are_refused_unless_on_loopback(tmp_path):
    network = tmp_path / "net.yaml"
    network.write_text(TestOnAnEmulatedNetwork.NETWORK)
    assert choose_network(network, loopback=True, num_workers=33) is None
    with pytest.raises(UserError) as refused:
        choose_network(network, loopback=False, num_workers=33)
    assert str(refused.value) == (
        f"--network: '{network}': joins at most 32 workers, and the job has 33; lower its spec.workers, or add "
        "--loopback"
    )


def test_a_port_for_metrics_with_too_few_above_it_for_the_monitors_is_refused():
    with pytest.raises(UserError, match="leaves too few ports above it for 3 monitors; choose one up to 65532"):
        refuse_taken_ports(65533, 4)
