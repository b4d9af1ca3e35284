"""On older kernels: no ``/proc/sys/net/core`` in a namespace, and no IPv6. Monitors, emulator and a run work there."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kit import older_kernel
from trimtab_netmon.emulate import Emulator, Network, Phase

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(600)]

#: Few hosts and bytes, for these tests run on a real older kernel too, which is slow (`scripts/older-kernel`).
HOSTS, PORT, BANDWIDTH = 2, 9400, 1.25e6
WITHIN = 120.0
PRINT_LINKS = Path(__file__).parents[1] / "netmon" / "print_links.py"
TRAINING = Path(__file__).with_name("until_a_plan_is_chosen.py")
NETWORK = """
apiVersion: trimtab.dev/v1alpha1
kind: Network
phases: [{duration: 600s, latency: 2ms, bandwidth: 10Mbps}]
"""
JOB = """
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata: {name: older-kernel}
spec:
  workers: 2
  restartPolicy: Never
  template: {spec: {containers: [{name: trainer, command: [python, SCRIPT]}]}}
"""


@pytest.fixture
def on_an_older_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever enters a namespace finds what an older kernel has there."""
    monkeypatch.setenv("PATH", older_kernel.put_before_nsenter(tmp_path))


def num_links_shown(reader: list[str], enough: int) -> int:
    """The most measured links that the reader prints: ``enough``, or as many as there are within `WITHIN` seconds."""
    most = 0
    with subprocess.Popen(reader, stdout=subprocess.PIPE, text=True) as process:
        killer = threading.Timer(WITHIN, process.kill)
        killer.start()
        assert process.stdout is not None
        for line in process.stdout:
            most = max(most, len(json.loads(line)))
            if most == enough:
                break
        killer.cancel()
        process.kill()
    return most


@pytest.mark.usefixtures("on_an_older_kernel")
def test_monitors_on_emulated_hosts_measure_every_link_without_the_files_of_a_new_kernel():
    with Emulator(Network((Phase(60.0, 0.001, BANDWIDTH),)), hosts=HOSTS, name="test") as emulator:
        is_there = emulator.command(0, ["sh", "-c", "test -e /proc/sys/net/core/wmem_max"])
        assert subprocess.run(is_there, check=False).returncode == 1
        peers = ",".join(f"{host.address}:{PORT}" for host in emulator.hosts)
        monitors = []
        try:
            for rank, host in enumerate(emulator.hosts):
                argv = [sys.executable, "-m", "trimtab_netmon.main", "serve", "--rank", str(rank), "--peers", peers]
                argv += ["--listen", f"{host.address}:{PORT}", "--interface", host.device, "--probe-interval", "1s"]
                argv += ["--probe-budget", "0.5"]
                monitors.append(subprocess.Popen(emulator.command(rank, argv), stderr=subprocess.DEVNULL))
            reader = [sys.executable, str(PRINT_LINKS), f"{emulator.hosts[1].address}:{PORT}"]
            assert num_links_shown(emulator.command(1, reader), HOSTS * (HOSTS - 1)) == HOSTS * (HOSTS - 1)
        finally:
            for monitor in monitors:
                monitor.kill()
                monitor.wait(10)


@pytest.mark.usefixtures("on_an_older_kernel")
def test_an_adaptive_run_chooses_its_plan_without_the_files_of_a_new_kernel(tmp_path: Path):
    (tmp_path / "job.yaml").write_text(JOB.replace("SCRIPT", f"'{TRAINING}'"))
    (tmp_path / "net.yaml").write_text(NETWORK)
    argv = [sys.executable, "-m", "trimtab", "run", "job.yaml", "--network", "net.yaml", "--out", "out"]
    done = subprocess.run(argv, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=500, check=False)
    log = tmp_path / "out" / "logs" / "rank-0.log"
    assert done.returncode == 0, done.stderr + log.read_text()
