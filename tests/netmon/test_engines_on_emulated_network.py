"""iperf3 and the native engine are held against each other: on one emulated network both find what was set."""

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kit.validated_network import PATIENCE, on_a_network
from trimtab_netmon.emulate import load_network

HERE = Path(__file__).parent
NETWORK = """
apiVersion: trimtab.dev/v1alpha1
kind: Network
phases:
  - {duration: 1h, latency: 2ms, bandwidth: 200Mbps}
"""
BANDWIDTH = 25e6
PORT = 9400
WITHIN = 40
"""Seconds that a measurement may take."""

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(300 + PATIENCE)]


def measured(emulator, probe):
    """What two monitors that use this engine say of the bandwidth, and by which method."""
    with contextlib.ExitStack() as stack:

        def start(host, argv):
            process = subprocess.Popen(
                emulator.command(host, argv), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            stack.callback(process.stdout.close)
            stack.callback(process.wait, 10)
            stack.callback(process.kill)
            return process

        peers = ",".join(f"{host.address}:{PORT}" for host in emulator.hosts)
        for rank, host in enumerate(emulator.hosts):
            argv = [sys.executable, "-m", "trimtab_netmon.main", "serve", "--rank", str(rank), "--peers", peers]
            start(rank, [*argv, "--listen", f"{host.address}:{PORT}", "--interface", host.device, "--probe", probe])
        reader = start(1, [sys.executable, str(HERE / "print_network.py"), f"{emulator.hosts[1].address}:{PORT}"])
        killer = threading.Timer(WITHIN, reader.kill)
        killer.start()
        stack.callback(killer.cancel)
        for line in reader.stdout:
            view = json.loads(line)
            if view["bandwidth"] and not view["stale"]:
                return view["bandwidth"], view["bandwidth_method"]
        raise AssertionError(f"{probe} measured nothing within {WITHIN} s")


def test_iperf3_and_the_native_engine_find_the_same_bandwidth(tmp_path):
    file = tmp_path / "network.yaml"
    file.write_text(NETWORK)

    def check(emulator):
        by_iperf3, by_native = measured(emulator, "iperf3"), measured(emulator, "native")
        assert (by_iperf3[1], by_native[1]) == ("iperf3", "native")
        assert by_iperf3[0] == pytest.approx(BANDWIDTH, rel=0.1)
        assert by_native[0] == pytest.approx(BANDWIDTH, rel=0.1)
        assert by_native[0] == pytest.approx(by_iperf3[0], rel=0.1)

    on_a_network(load_network(file), 2, check)
