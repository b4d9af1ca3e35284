"""Real monitors on an emulated network: the figures are those that were set, whatever training does beside them."""

import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from trimtab_api.units import parse_bandwidth, parse_duration
from trimtab_netmon.emulate import Emulator, load_network

HERE = Path(__file__).parent
NUM_HOSTS = 4
PORT = 9400
WITHIN = 40
"""Seconds that a wait may take; what it really took is printed."""

pytestmark = [pytest.mark.namespaces, pytest.mark.slow]


class Scene:
    """An emulated network with a monitor on every host, and what host 1's monitor publishes."""

    def __init__(self, emulator):
        self.emulator = emulator
        self.views = queue.Queue()
        self.processes = []
        addresses = [host.address for host in emulator.hosts]
        peers = ",".join(f"{address}:{PORT}" for address in addresses)
        for rank, host in enumerate(emulator.hosts):
            argv = [sys.executable, "-m", "trimtab_netmon.main", "serve", "--rank", str(rank), "--peers", peers]
            self.start(rank, [*argv, "--listen", f"{host.address}:{PORT}", "--interface", host.device])
        reader = self.start(1, [sys.executable, str(HERE / "print_network.py"), f"{addresses[1]}:{PORT}"])
        threading.Thread(target=self.read, args=(reader.stdout,), daemon=True).start()

    def start(self, host, argv):
        process = subprocess.Popen(
            self.emulator.command(host, argv), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.processes.append(process)
        return process

    def read(self, lines):
        for line in lines:
            self.views.put(json.loads(line))

    def train(self, num_bytes, pause):
        """Start traffic like training's on all hosts."""
        for rank, host in enumerate(self.emulator.hosts):
            following = self.emulator.hosts[(rank + 1) % NUM_HOSTS].address
            script = [sys.executable, str(HERE / "synchronous_traffic.py")]
            self.start(rank, [*script, host.address, following, str(num_bytes), str(pause)])

    def wait_for(self, latency, bandwidth, since):
        """Seconds from ``since`` until the published figures are those within 10% (or 0.5 ms)."""
        deadline = time.monotonic() + WITHIN
        last = None
        while time.monotonic() < deadline:
            try:
                last = self.views.get(timeout=1)
            except queue.Empty:
                continue
            if not last["stale"] and is_near(last, latency, bandwidth):
                return last["at"] - since
        pytest.fail(f"{latency} s, {bandwidth} bytes/s are not seen within {WITHIN} s; last: {last}")

    def seen_for(self, seconds):
        """Every view of the next seconds."""
        deadline, views = time.monotonic() + seconds, []
        while (remaining := deadline - time.monotonic()) > 0:
            try:
                views.append(self.views.get(timeout=remaining))
            except queue.Empty:
                break
        return views

    def close(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait(10)
            process.stdout.close()


def is_near(view, latency, bandwidth):
    is_latency_near = abs(view["latency"] - latency) <= max(0.1 * latency, 0.0005)
    return is_latency_near and abs(view["bandwidth"] - bandwidth) <= 0.1 * bandwidth


@pytest.fixture
def scene(tmp_path):
    scenes = []

    def make(*phases):
        file = tmp_path / "network.yaml"
        lines = [f"  - {{duration: {d}, latency: {latency}, bandwidth: {rate}}}" for d, latency, rate in phases]
        file.write_text("\n".join(["apiVersion: trimtab.dev/v1alpha1", "kind: Network", "phases:", *lines]) + "\n")
        emulator = Emulator(load_network(file), hosts=NUM_HOSTS, name="nm")
        emulator.start()
        scenes.append(emulator)
        scenes.append(Scene(emulator))
        return scenes[-1]

    yield make
    for each in reversed(scenes):
        each.close()


@pytest.mark.parametrize(("latency", "rate"), [("1ms", "1Gbps"), ("25ms", "1Gbps"), ("2ms", "100Mbps")])
def test_figures_are_what_was_set_and_training_does_not_move_them(scene, latency, rate):
    network = scene(("1h", latency, rate))
    seconds, bandwidth = parse_duration(latency), parse_bandwidth(rate)
    took = network.wait_for(seconds, bandwidth, time.monotonic())
    print(f"\n{latency} {rate}: seen after {took:.1f} s")
    network.train(num_bytes=round(0.4 * bandwidth), pause=0.15)
    moved = [view for view in network.seen_for(25) if not is_near(view, seconds, bandwidth)]
    assert not moved


@pytest.mark.parametrize("is_training", [False, True])
def test_a_change_of_the_network_is_seen_in_seconds(scene, is_training):
    network = scene(
        ("10s", "1ms", "1Gbps"), ("12s", "25ms", "1Gbps"), ("12s", "2ms", "100Mbps"), ("1h", "1ms", "1Gbps")
    )
    network.wait_for(0.001, 125e6, time.monotonic())
    if is_training:
        network.train(num_bytes=10_000_000, pause=0.15)
    network.emulator.begin()
    begun = time.monotonic()
    for at, latency, bandwidth in ((10, 0.025, 125e6), (22, 0.002, 12.5e6), (34, 0.001, 125e6)):
        took = network.wait_for(latency, bandwidth, begun + at)
        print(f"\n{latency * 1e3:g} ms, {bandwidth * 8e-6:g} Mbit/s, training {is_training}: seen after {took:.2f} s")
