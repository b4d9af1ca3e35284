"""A script that torchrun, mpirun or nobody's launcher started trains as one that `trimtab run` started."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from trimtab.cli.main import main
from trimtab_netmon.emulate import Emulator, Network, Phase

SCRIPT = Path(__file__).parent / "adopted.py"
HOOKED = Path(__file__).parent.parent / "integrations/hooked.py"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
NUM_STEPS = 4096 // 16 // 2
#: 25 Mbit/s: what Adam needs three times the steps for still pays, beside dense in bfloat16 and on a slow machine.
SLOW_BANDWIDTH = 3.125e6
pytestmark = pytest.mark.slow


def launched(argv, folder, *, code=0, **variables):
    """What the command printed, on both streams, and its run's directory."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    ended = subprocess.run(
        list(map(str, argv)), cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert (ended.returncode != 0) == bool(code), ended.stderr
    return ended.stdout, ended.stderr


def lines(file: Path):
    return [json.loads(line) for line in file.read_text().splitlines()]


def weights(output: str) -> list[str]:
    """Of each rank that ended well: a sum that shows every bit."""
    return re.findall(r"ends with (?:\S+ and )?(\S+)\.", output)


def test_torchrun_needs_no_job(tmp_path):
    argv = [*TORCHRUN, "--standalone", "--nproc-per-node=2", SCRIPT]
    output, errors = launched(argv, tmp_path)
    assert len(weights(output)) == 2
    assert len(set(weights(output))) == 1
    assert errors.count("all 2 ranks are on one host: no network is measured") == 1
    run = tmp_path / "runs/adopted"
    assert [each["step"] for each in lines(run / "metrics.jsonl")] == list(range(NUM_STEPS))
    assert json.loads((run / "result.json").read_text())["state"] == "succeeded"
    spec = json.loads((run / "job.json").read_text())["spec"]
    assert (spec["workers"], spec["processesPerWorker"], spec["communication"]["policy"]) == (1, 2, "Adaptive")
    assert main(["report", str(run)]) == 0


@pytest.mark.pattern("mpirun", works="joins its ranks")
@pytest.mark.full
@pytest.mark.mpi
def test_mpirun_takes_the_plan_from_the_environment(tmp_path):
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", 3, sys.executable, SCRIPT]
    output, _ = launched(argv, tmp_path, TRIMTAB_PLAN="0.05/artopk-star-ring", TRIMTAB_RUN_DIR="here")
    assert len(weights(output)) == 3
    assert len(set(weights(output))) == 1
    assert {each["plan"] for each in lines(tmp_path / "here/metrics.jsonl")} == {"0.05/artopk-star-ring"}


def test_how_a_run_failed_is_written_down(tmp_path):
    argv = [*TORCHRUN, "--standalone", "--nproc-per-node=2", SCRIPT, "plan=dense", "run_directory=out"]
    launched([*argv, "--raise=0"], tmp_path, code=1)
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert (result["state"], result["message"]) == ("failed", "rank 0 ended with RuntimeError: as it was told to")
    launched([*argv, "--raise=1"], tmp_path, code=1)  # the same directory: the run before has let go of it
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert result["state"] in ("failed", "interrupted")
    assert "rank 1" in result["message"] or "another rank has failed" in result["message"]


@pytest.mark.pattern("torchrun, accelerate launch", works="joins its ranks")
@pytest.mark.full
@pytest.mark.namespaces
@pytest.mark.parametrize("script", [(SCRIPT, "width=4096"), (HOOKED, "--width=4096")], ids=["attach", "hook"])
def test_torchrun_on_several_hosts_adapts_to_their_network(script, tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: told}\nspec:\n  workers: 1\n"
        "  seed: 7\n  communication: {collectives: [all-gather]}\n"
        "  template: {spec: {containers: [{name: trainer, command: [python, x.py]}]}}\n"
    )
    network = Network(phases=(Phase(duration=3600.0, latency=0.001, bandwidth=SLOW_BANDWIDTH),))
    with Emulator(network, hosts=3) as emulator:
        emulator.begin()
        where = ["--master-addr", emulator.hosts[0].address, "--master-port", "29500"]
        started = []
        for host in range(3):
            argv = [*TORCHRUN, "--nnodes=3", "--node-rank", host, *where, *script]
            started.append(
                subprocess.Popen(
                    emulator.command(host, list(map(str, argv))),
                    cwd=tmp_path,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "TRIMTAB_JOB": str(job), "GLOO_SOCKET_IFNAME": "tt0"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        outputs = [each.communicate(timeout=200)[0] for each in started]
        running = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert [each.returncode for each in started] == [0, 0, 0], "\n".join(outputs)
    assert not [each for each in running if str(tmp_path) in each or f"{emulator.hosts[0].address}:" in each]
    assert len({each for output in outputs for each in weights(output)}) == 1
    run = tmp_path / "runs/told"
    last = [each for each in lines(run / "metrics.jsonl") if "event" not in each][-1]  # a round's end is a line too
    assert "/all-gather" in last["plan"]
    assert 0.7 * SLOW_BANDWIDTH < last["bandwidth"] < 1.1 * SLOW_BANDWIDTH
    assert last["latency"] > 0.001
    resolved = json.loads((run / "job.json").read_text())["spec"]
    assert (resolved["workers"], resolved["processesPerWorker"], resolved["seed"]) == (3, 1, 7)
    logs = {each.name for each in (run / "logs").iterdir()}
    assert logs == {"monitor-0.log", "monitor-1.log", "monitor-2.log", "status.log"}
    assert not (run / "status.address").exists()
