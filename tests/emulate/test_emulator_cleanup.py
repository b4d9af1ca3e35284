"""However the process that made an emulator ends, nothing of it stays: no namespace, no relay, nothing on its hosts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trimtab_netmon.emulate import namespaces

pytestmark = pytest.mark.namespaces

#: Starts an emulator and a process on a host that outlives it if nobody ends it, says so, and ends in some way.
OWNER = """
import subprocess, sys, time
from trimtab_netmon.emulate import Emulator, Network, Phase

emulator = Emulator(Network((Phase(60.0, 0.001, 1e7),)), hosts=3, name="cleanup")
{use}
"""
INSIDE = """
    child = subprocess.Popen(emulator.command(0, ["sleep", "1000"]))
    print(child.pid, *(host.namespace for host in emulator.hosts), flush=True)
    sys.stdin.readline()
"""
WITH = f"with emulator:{INSIDE}"
WITHOUT_CLOSE = f"emulator.start()\nif True:{INSIDE}"


class Owner:
    """A process that holds an emulator."""

    def __init__(self, use: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER.format(use=use)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        child, *self.namespaces = self.process.stdout.readline().split()
        self.child = int(child)

    def left(self) -> list[str]:
        """What is still there of it."""
        left = [name for name in self.namespaces if namespaces.path_of(name).exists()]
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    command = (process / "cmdline").read_text()
                except OSError:
                    continue
                if any(name in command for name in self.namespaces) or int(process.name) == self.child:
                    left.append(f"{process.name}: {command}")
        return left


def wait_until_nothing_is_left(owner: Owner) -> None:
    deadline = time.monotonic() + 30
    while left := owner.left():
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


@pytest.fixture
def start():
    owners = []

    def start(use: str) -> Owner:
        owners.append(Owner(use))
        assert len(owners[-1].left()) >= 3 + 1 + 1, "three namespaces, the relay, the child"
        return owners[-1]

    yield start
    for owner in owners:
        owner.process.kill()
        owner.process.communicate()


@pytest.mark.parametrize("use", [WITH, WITHOUT_CLOSE], ids=["with", "without close"])
def test_the_process_ends_by_itself(start, use: str):
    owner = start(use)
    assert owner.process.communicate("\n", timeout=60) is not None
    assert owner.process.returncode == 0
    wait_until_nothing_is_left(owner)


def test_leaving_the_context_has_removed_everything_already(start):
    owner = start(f"{WITH}print('left', flush=True)\nsys.stdin.readline()")
    owner.process.stdin.write("\n")
    owner.process.stdin.flush()
    assert owner.process.stdout.readline() == "left\n"
    assert [left for left in owner.left() if not left.startswith(f"{owner.child}: ")] == []


def test_an_exception(start):
    owner = start(f"{WITH}    raise ValueError")
    owner.process.communicate("\n", timeout=60)
    assert owner.process.returncode == 1
    wait_until_nothing_is_left(owner)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("use", [WITH, WITHOUT_CLOSE], ids=["with", "without close"])
def test_a_signal(start, use: str, how: signal.Signals):
    owner = start(use)
    os.kill(owner.process.pid, how)
    owner.process.wait(timeout=60)
    wait_until_nothing_is_left(owner)


def test_ctrl_c_at_the_terminal_reaches_the_whole_process_group(start):
    owner = start(WITH)
    os.killpg(owner.process.pid, signal.SIGINT)
    owner.process.wait(timeout=60)
    wait_until_nothing_is_left(owner)


def test_owner_and_relay_killed_together_leave_namespaces_that_the_next_start_sweeps(start):
    owner = start(WITH)
    for left in owner.left():
        pid, colon, command = left.partition(":")
        if colon and "relay-" in command:
            os.kill(int(pid), signal.SIGSTOP)  # it cannot sweep
            os.kill(owner.process.pid, signal.SIGKILL)
            owner.process.wait(timeout=60)
            os.kill(int(pid), signal.SIGKILL)
    assert set(owner.namespaces) <= set(namespaces.sweep())
    wait_until_nothing_is_left(owner)


def test_a_sweep_reads_of_a_process_whatever_its_name(tmp_path, monkeypatch):
    name = "entraînement-évé".encode()[:15]  # cut off within a character, as the kernel does
    command = f"import ctypes; ctypes.CDLL(None).prctl(15, {name!r}); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        monkeypatch.setattr(namespaces, "NAMESPACES", tmp_path)
        (tmp_path / f"trimtab-x-{process.pid}-0-0").touch()
        assert namespaces.sweep() == []
        process.kill()


def test_a_sweep_leaves_alone_what_has_an_owner(start):
    owner = start(WITH)
    assert not set(owner.namespaces) & set(namespaces.sweep())
    assert all(namespaces.path_of(name).exists() for name in owner.namespaces)
