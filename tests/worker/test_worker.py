"""`trimtab worker` as the entry of pods: each in a network namespace of its own, with its monitor and certificates."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.certificates import Authority
from kit.run_processes import wait_until
from trimtab.run_files.layout import RunDirectory
from trimtab_api.names import MASTER_PORT, MONITOR_PORT
from trimtab_api.steps_of_attempts import failed_before_first_step

pytestmark = pytest.mark.namespaces

TOY = Path(__file__).parents[1] / "cli" / "toy_training.py"
PATIENCE = 120
"""Seconds: generous, because every other test may be running beside this one."""


class Pods:
    """The pods of one job, as the operator would make them, on emulated hosts."""

    def __init__(self, emulator, directory, num_workers, processes):
        self.emulator = emulator
        self.path = directory
        self.num_workers = num_workers
        self.addresses = [host.address for host in emulator.hosts]
        self.started = []
        authority = Authority.new()
        self.tls = authority.issue(directory / "tls", names=("localhost", *self.addresses))
        self.job = directory / "job.json"
        self.write_job(processes)

    def write_job(self, processes=1, **container):
        trainer = {"name": "trainer", "command": ["python"], "terminationMessagePath": str(self.path / "message")}
        spec = {
            "workers": self.num_workers,
            "processesPerWorker": processes,
            "communication": {"policy": "Adaptive"},
            "template": {"spec": {"containers": [trainer | container]}},
        }
        head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "toy"}}
        self.job.write_text(json.dumps(head | {"spec": spec}))

    def run_directory(self, worker):
        return RunDirectory(self.path / f"run-{worker}")

    @property
    def message(self):
        return (self.path / "message").read_text()

    def monitor(self, worker):
        peers = ",".join(self.addresses)
        argv = [sys.executable, "-m", "trimtab_netmon.main", "serve", "--rank", str(worker), "--peers", peers]
        argv += ["--listen", f"{self.addresses[worker]}:{MONITOR_PORT}", "--interface", "tt0"]
        return self.start(worker, argv, os.environ | {"TRIMTAB_TLS_DIR": str(self.tls)})

    def trainer(self, worker, *command, **more):
        environment = {
            "JOB_COMPLETION_INDEX": str(worker),
            "TRIMTAB_POD_IP": self.addresses[worker],
            "TRIMTAB_JOB": str(self.job),
            "TRIMTAB_RUN_DIR": str(self.run_directory(worker).path),
            "TRIMTAB_TLS_DIR": str(self.tls),
            "MASTER_ADDR": self.addresses[0],
            "MASTER_PORT": str(MASTER_PORT),
            "GLOO_SOCKET_IFNAME": "tt0",
        }
        argv = [sys.executable, "-m", "trimtab", "worker", "--", *command]
        return self.start(worker, argv, os.environ | environment | more)

    def toy(self, worker, *arguments, **more):
        return self.trainer(worker, sys.executable, str(TOY), *arguments, **more)

    def start(self, worker, argv, environment):
        process = subprocess.Popen(
            self.emulator.command(worker, argv),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process


@pytest.fixture
def pods(tmp_path):
    """Make the pods of a job; whatever runs in them afterwards goes with their namespaces."""
    from trimtab_netmon.emulate import Emulator, Network, Phase

    emulators = []

    def make(num_workers, processes=1):
        emulator = Emulator(Network((Phase(60.0, 0.001, 125e6),)), hosts=num_workers)
        emulators.append(emulator)
        emulator.__enter__()
        return Pods(emulator, tmp_path, num_workers, processes)

    yield make
    for emulator in emulators:
        emulator.__exit__(None, None, None)


def end(process):
    output, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, output, errors


def test_the_ranks_of_all_pods_find_each_other_and_train(pods):
    job = pods(num_workers=2, processes=2)
    second = job.toy(1, "--steps", "5")  # before its monitor, and before worker 0
    monitors = [job.monitor(worker) for worker in range(2)]
    first = job.toy(0, "--steps", "5")
    code, output, errors = end(first)
    assert (code, errors) == (0, "")
    assert sorted(output.splitlines()) == [f"[rank {rank}] rank {rank} of 4 says nothing" for rank in (0, 1)]
    code, output, errors = end(second)
    assert (code, errors) == (0, "")
    assert sorted(output.splitlines()) == [f"[rank {rank}] rank {rank} of 4 says nothing" for rank in (2, 3)]
    directory = job.run_directory(0)
    assert json.loads(directory.result.read_text())["state"] == "succeeded"
    assert len(directory.metrics.read_text().splitlines()) == 6
    assert not (job.path / "message").exists()
    assert all(monitor.poll() is None for monitor in monitors)


def test_worker_0_serves_the_status_over_mutual_tls(pods):
    job = pods(num_workers=1)
    job.monitor(0)
    trainer = job.toy(0, "--forever", "--steps", "7")
    wait_until(job.run_directory(0).status_address.exists, PATIENCE)

    def status():
        argv = [sys.executable, "-m", "trimtab", "status", "--once", "--json"]
        here = {"TRIMTAB_RUN_DIR": str(job.run_directory(0).path), "TRIMTAB_TLS_DIR": str(job.tls)}
        code, output, errors = end(job.start(0, argv, os.environ | here))
        assert (code, errors) == (0, "")
        return json.loads(output)

    wait_until(lambda: status().get("step") == "7", PATIENCE)
    wait_until(lambda: "revision" in status()["network"], PATIENCE)  # JSON leaves out the revision 0
    assert trainer.poll() is None


def test_a_rank_that_fails_ends_its_pod_with_its_code_and_its_last_lines(pods):
    job = pods(num_workers=1, processes=2)
    job.monitor(0)
    code, output, errors = end(job.toy(0, "--die-rank", "1", "--die-code", "9"))
    assert code == 9
    assert "[rank 1] the dog ate my gradient" in output
    assert errors == "trimtab: rank 1 ended with exit code 9 before its first step; it last said\n"
    assert job.message.splitlines() == [
        "rank 1 ended with exit code 9 before its first step; it last said",
        "    rank 1 of 2 says nothing",
        "    the dog ate my gradient",
    ]
    result = json.loads(job.run_directory(0).result.read_text())
    assert (result["state"], result["message"]) == ("failed", job.message)


def test_a_rank_that_a_signal_kills_is_told_as_a_shell_would(pods):
    job = pods(num_workers=1)
    job.monitor(0)
    code, _, errors = end(job.toy(0, "--die-rank", "0", "--die-signal"))
    assert code == 137
    assert errors.startswith("trimtab: rank 0 ended with signal SIGKILL")


def test_a_rank_that_fails_before_its_first_step_says_so(pods):
    job = pods(num_workers=1)
    job.monitor(0)
    code, _, errors = end(job.trainer(0, sys.executable, "-c", "raise ValueError('a torn checkpoint')"))
    assert code == 1
    assert errors.startswith("trimtab: rank 0 ended with exit code 1 before its first step; it last said")
    assert failed_before_first_step(job.message)


def test_a_pod_that_is_told_to_end_ends_its_ranks(pods):
    job = pods(num_workers=1)
    job.monitor(0)
    trainer = job.toy(0, "--forever", "--child")
    directory = job.run_directory(0)
    wait_until(directory.started.exists, PATIENCE)
    child = Path(f"/proc/{(directory.path / 'child-0').read_text()}")
    assert child.exists()
    trainer.terminate()
    code, _, _ = end(trainer)
    assert code == 143
    assert job.message == "worker 0 was told to end"
    wait_until(lambda: not child.exists())
    assert json.loads(directory.result.read_text())["state"] == "interrupted"


def test_a_command_that_the_image_lacks_is_named(pods):
    job = pods(num_workers=1)
    job.monitor(0)
    code, _, errors = end(job.trainer(0, "pyton", "train.py"))
    assert code == 2
    told = "spec.template.spec.containers[trainer].command: 'pyton': no such program in this image"
    assert errors == f"trimtab: {told}\n"
    assert job.message == f"nothing was started: {told}"
    assert failed_before_first_step(job.message)


def test_outside_a_pod_it_says_what_to_use_instead(tmp_path):
    argv = [sys.executable, "-m", "trimtab", "worker", "--", "python", "train.py"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "trimtab: JOB_COMPLETION_INDEX: is not set; this command is the entry of a pod that the operator makes. "
        "On one machine, use `trimtab run`\n"
    )


@pytest.mark.slow
def test_a_real_training_sees_its_network_through_the_monitor_beside_it(pods):
    job = pods(num_workers=2)
    for worker in range(2):
        job.monitor(worker)
    digits = (sys.executable, "-m", "trimtab.workloads.digits", "--epochs", "1")
    trainers = [job.trainer(worker, *digits) for worker in range(2)]
    ended = [end(each) for each in trainers]
    assert [code for code, _, _ in ended] == [0, 0], "".join(output for _, output, _ in ended)
    lines = [json.loads(line) for line in job.run_directory(0).metrics.read_text().splitlines()]
    assert any((line.get("latency") or 0) > 0.0005 for line in lines)
    assert job.run_directory(0).decisions.exists()
