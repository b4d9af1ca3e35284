"""When a failed check is tried again: only where the machine says that it was not let run."""

import dataclasses
import os
import signal
import time
from pathlib import Path

import pytest
from kit import validated_network
from kit.validated_network import on_a_network, was_on_time
from trimtab_netmon.emulate import Emulator, Network, Phase

pytestmark = pytest.mark.namespaces

NETWORK = Network((Phase(60.0, 0.001, 125e6),))


def stand_still(emulator: Emulator, seconds: float) -> None:
    relay = emulator._relay._process.pid
    os.kill(relay, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(relay, signal.SIGCONT)
    while emulator.lag().heartbeat_lag.max < seconds / 2:  # until it has noticed
        time.sleep(0.01)


def test_a_check_that_fails_beside_a_relay_that_stood_still_is_tried_on_another_network(monkeypatch):
    monkeypatch.setattr(validated_network, "wait_for_the_processors", lambda deadline: None)
    monkeypatch.setattr(validated_network, "_spent", 0.0)  # what it spends is not taken from other checks
    seen = []

    def check(emulator: Emulator) -> str:
        seen.append(emulator)
        if len(seen) == 1:
            stand_still(emulator, 0.3)
            raise AssertionError("the first")
        return "done"

    assert on_a_network(NETWORK, 2, check) == "done"
    assert len(seen) == 2
    assert seen[0] is not seen[1]


def test_a_check_that_never_holds_fails_with_the_last_report(monkeypatch):
    monkeypatch.setattr(validated_network, "_spent", validated_network.PATIENCE)  # by checks before it

    def check(emulator: Emulator) -> None:
        stand_still(emulator, 0.3)
        raise AssertionError("as always")

    with pytest.raises(AssertionError, match=r"^as always\nINVALID: .* of the processors' time was stolen$"):
        on_a_network(NETWORK, 2, check)


def test_what_counts_as_on_time():
    with Emulator(NETWORK, hosts=2, name="test") as emulator:
        report = emulator.lag()
    beat = dataclasses.replace(report.heartbeat_lag, samples=1000, late=0, max=0.004)
    report = dataclasses.replace(report, heartbeat_lag=beat)
    assert was_on_time(report, 0.01)
    assert not was_on_time(report, 0.03)
    assert not was_on_time(dataclasses.replace(report, heartbeat_lag=dataclasses.replace(beat, late=11)), 0.01)
    assert not was_on_time(dataclasses.replace(report, heartbeat_lag=dataclasses.replace(beat, max=0.006)), 0.01)


def test_another_try_waits_until_the_processors_are_there(monkeypatch):
    stolen = [0.8, 0.03, 0.0, 0.0]
    monkeypatch.setattr(validated_network, "stolen_while_busy", lambda: stolen.pop(0))
    monkeypatch.setattr(validated_network, "REST", 0.01)
    validated_network.wait_for_the_processors(time.monotonic() + 60)
    assert stolen == [0.0]


def test_nothing_is_waited_for_past_the_deadline(monkeypatch):
    monkeypatch.setattr(validated_network, "stolen_while_busy", lambda: 0.8)
    validated_network.wait_for_the_processors(time.monotonic() + validated_network.REST / 2)


def test_being_busy_is_noticed():
    def busy_jiffies():
        return sum(int(jiffies) for jiffies in Path("/proc/stat").read_text().split()[1:4])

    before = busy_jiffies()
    assert 0.0 <= validated_network.stolen_while_busy() <= 1.0
    assert busy_jiffies() - before > 0.2 * os.sysconf("SC_CLK_TCK")
