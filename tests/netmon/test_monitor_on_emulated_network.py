"""Real monitors on an emulated network measure what was set, whatever training does beside them."""

import contextlib
import itertools
import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kit.validated_network import PATIENCE, on_a_network
from trimtab_api.units import parse_bandwidth, parse_duration
from trimtab_netmon.emulate import load_network

HERE = Path(__file__).parent
NUM_HOSTS = 4
PORT = 9400
WITHIN = 40
"""Seconds that a wait may take; what it really took is printed."""

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(600 + PATIENCE)]


class Scene:
    """An emulated network with a monitor on every host, and what host 1's monitor publishes."""

    def __init__(self, emulator, *options):
        self.emulator = emulator
        self.views = queue.Queue()
        self.processes = []
        addresses = [host.address for host in emulator.hosts]
        peers = ",".join(f"{address}:{PORT}" for address in addresses)
        for rank, host in enumerate(emulator.hosts):
            argv = [sys.executable, "-m", "trimtab_netmon.main", "serve", "--rank", str(rank), "--peers", peers]
            self.start(rank, [*argv, "--listen", f"{host.address}:{PORT}", "--interface", host.device, *options])
        self.monitor = f"{addresses[1]}:{PORT}"
        reader = self.start(1, [sys.executable, str(HERE / "print_network.py"), self.monitor])
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
        """Seconds from ``since`` until the published measurements are those within 10% (or 0.5 ms)."""
        deadline = time.monotonic() + WITHIN
        last = None
        while time.monotonic() < deadline:
            try:
                last = self.views.get(timeout=1)
            except queue.Empty:
                continue
            if not last["stale"] and is_near(last, latency, bandwidth):
                return last["at"] - since
        raise AssertionError(f"{latency} s, {bandwidth} bytes/s are not seen within {WITHIN} s; last: {last}")

    def all_links(self):
        """Bytes per second of every link, by source and target, as soon as all are known."""
        reader = self.start(1, [sys.executable, str(HERE / "print_links.py"), self.monitor])
        killer = threading.Timer(2 * WITHIN, reader.kill)
        killer.start()
        known = {}
        for line in reader.stdout:
            known = json.loads(line)
            if len(known) == NUM_HOSTS * (NUM_HOSTS - 1):
                killer.cancel()
                return {tuple(map(int, pair.split("-"))): value for pair, value in known.items()}
        raise AssertionError(f"not every link is known within {2 * WITHIN} s; last: {known}")

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


def on_a_scene(file, phases, check):
    """Run ``check(scene)`` on a network of these phases."""
    lines = [f"  - {{duration: {d}, latency: {latency}, bandwidth: {rate}}}" for d, latency, rate in phases]
    run_on(file, "phases:\n" + "\n".join(lines), check)


def run_on(file, phases, check, *options):
    """Run ``check(scene)`` on a network whose phases are written thus, its monitors started with these options."""
    file.write_text(f"apiVersion: trimtab.dev/v1alpha1\nkind: Network\n{phases}\n")

    def check_scene(emulator):
        with contextlib.closing(Scene(emulator, *options)) as scene:
            check(scene)

    on_a_network(load_network(file), NUM_HOSTS, check_scene)


@pytest.mark.full
@pytest.mark.parametrize(("latency", "rate"), [("1ms", "1Gbps"), ("25ms", "1Gbps"), ("2ms", "100Mbps")])
def test_figures_are_what_was_set_and_training_does_not_move_them(tmp_path, latency, rate):
    seconds, bandwidth = parse_duration(latency), parse_bandwidth(rate)

    def check(network):
        took = network.wait_for(seconds, bandwidth, time.monotonic())
        print(f"\n{latency} {rate}: seen after {took:.1f} s")
        network.train(num_bytes=round(0.4 * bandwidth), pause=0.15)
        assert not [view for view in network.seen_for(25) if not is_near(view, seconds, bandwidth)]

    on_a_scene(tmp_path / "network.yaml", [("1h", latency, rate)], check)


FAST, FAR, NARROW = (0.001, 125e6), (0.025, 125e6), (0.002, 12.5e6)
PHASES = ((10, *FAST), (12, *FAR), (12, *NARROW), (12, *FAR), (12, *NARROW), (3600, *FAST))
"""Seconds, latency, bandwidth. Farther and faster at once is what a monitor that trusts small tests misses."""


@pytest.mark.parametrize("is_training", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_change_of_the_network_is_seen_in_seconds(tmp_path, is_training):
    def check(network):
        network.wait_for(0.001, 125e6, time.monotonic())
        if is_training:
            network.train(num_bytes=10_000_000, pause=0.15)
        network.emulator.begin()
        begun = time.monotonic()
        at = 0
        for (duration, _, _), (_, latency, rate) in itertools.pairwise(PHASES):
            at += duration
            took = network.wait_for(latency, rate, begun + at)
            print(f"\n{latency * 1e3:g} ms, {rate * 8e-6:g} Mbit/s, training {is_training}: seen after {took:.2f} s")

    phases = [(f"{d}s", f"{latency * 1e3:g}ms", f"{rate * 8e-6:g}Mbps") for d, latency, rate in PHASES]
    on_a_scene(tmp_path / "network.yaml", phases, check)


RESTLESS = (
    *((6, 0.002, 25e6), (8, 0.010, 4e6), (5, 0.003, 110e6), (9, 0.020, 12e6), (7, 0.001, 60e6), (11, 0.008, 3.75e6)),
    *((6, 0.002, 90e6), (8, 0.025, 25e6), (5, 0.004, 6e6), (10, 0.001, 112e6), (7, 0.012, 20e6), (9, 0.002, 4e6)),
    *((8, 0.006, 75e6), (6, 0.001, 8e6), (11, 0.015, 112e6), (600, 0.003, 30e6)),
)
"""Seconds, latency, bandwidth: more changes than the default probe budget pays for."""
UNNOTICED = 15
"""Seconds for which a measurement may be wrong and called fresh: until the echoes have shown that the network changed,
and the tests that this provokes have ended, or cannot be afforded."""


def longest_wrong_and_fresh(views, phases, begun, until):
    """Seconds in a row in which the published bandwidth was more than a quarter off and called fresh."""
    ends = [begun + end for end in itertools.accumulate(duration for duration, _, _ in phases)]
    moments = sorted({until, *(each for each in ends if each < until), *(max(view["at"], begun) for view in views)})
    longest, wrong_since = 0.0, None
    for since, to in itertools.pairwise(moments):
        truth = next(rate for end, (_, _, rate) in zip(ends, phases, strict=True) if since < end)
        view = next(view for view in reversed(views) if view["at"] <= since)
        if view["stale"] or abs(view["bandwidth"] / truth - 1) <= 0.25:
            wrong_since = None
            continue
        wrong_since = since if wrong_since is None else wrong_since
        longest = max(longest, to - wrong_since)
    return longest


@pytest.mark.full
def test_a_measurement_that_the_budget_cannot_keep_right_is_not_called_fresh(tmp_path):
    """A restless network under a steady plan that sends little, so that only the monitor can see what it carries."""

    def check(network):
        network.wait_for(RESTLESS[0][1], RESTLESS[0][2], time.monotonic())
        network.train(num_bytes=100_000, pause=0.1)
        network.emulator.begin()
        begun = time.monotonic()
        seconds = sum(duration for duration, _, _ in RESTLESS[:-1])
        before = {"at": begun, "bandwidth": RESTLESS[0][2], "latency": RESTLESS[0][1], "stale": False}
        views = [before, *network.seen_for(seconds)]
        for view in views:
            print(f"{view['at'] - begun:6.1f} {view['bandwidth'] * 8e-6:6.0f} Mbit/s {'stale' * view['stale']}")
        assert longest_wrong_and_fresh(views, RESTLESS, begun, begun + seconds) <= UNNOTICED

    on_a_scene(
        tmp_path / "network.yaml", [(f"{d}s", f"{a * 1e3:g}ms", f"{b * 8e-6:g}Mbps") for d, a, b in RESTLESS], check
    )


UNEVEN = """
phases:
  - duration: 1h
    latency: 2ms
    bandwidth: 500Mbps
    hosts: {"2": {bandwidth: 100Mbps}}
"""
NARROW_LINK = "    links: [{from: 0, to: 3, bandwidth: 50Mbps}]"


@pytest.mark.full
@pytest.mark.parametrize("is_training", [False, True])
def test_what_is_expected_of_a_link_by_its_hosts_others_does_not_become_its_figure(tmp_path, is_training):
    """Of an uneven network: of most links the first test expects what another carries.

    Beside training no link is narrower than its hosts: what passes their interfaces does not tell its bandwidth.
    """

    def carries(pair):
        is_narrow = pair == (0, 3) and not is_training
        return 6.25e6 if is_narrow else 12.5e6 if 2 in pair else 62.5e6

    def check(network):
        network.wait_for(0.002, 12.5e6, time.monotonic())
        if is_training:
            network.train(num_bytes=1_000_000, pause=0.1)
        found = network.all_links()
        off = {pair: round(value * 8e-6) for pair, value in found.items() if abs(value / carries(pair) - 1) > 0.1}
        assert not off, "Mbit/s"

    phases = UNEVEN if is_training else UNEVEN + NARROW_LINK
    run_on(tmp_path / "network.yaml", phases, check, "--probe-interval", "1s", "--probe-budget", "0.3")
