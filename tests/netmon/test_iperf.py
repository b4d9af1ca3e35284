"""The children that run iperf3 end with those who wanted them, and the monitor says which iperf3 it found."""

import asyncio
import logging
import os
from asyncio.subprocess import PIPE

import psutil
import pytest
from trimtab_netmon.probing import iperf


def servers():
    return [each for each in psutil.Process().children() if "--server" in each.cmdline()]


def test_a_server_that_nobody_wants_any_more_ends_before_it_listens(monkeypatch):
    monkeypatch.setattr(iperf, "is_listening", lambda port: False)
    monkeypatch.setattr(iperf, "PATIENCE", 60)  # a busy machine may stand still for longer than it is

    async def scenario():
        starting = asyncio.create_task(iperf.IperfServer.start("127.0.0.1", "127.0.0.1"))
        while not servers():
            assert not starting.done(), starting.exception()
            await asyncio.sleep(0.005)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        return servers()

    assert asyncio.run(asyncio.wait_for(scenario(), 30)) == []


def test_a_child_that_ends_while_it_is_waited_for_is_ended_without_an_error(monkeypatch):
    monkeypatch.setattr(iperf, "PATIENCE", 0)  # too short to see even what has ended already

    async def scenario():
        child = await asyncio.create_subprocess_exec("sh", "-c", "echo over", stdout=PIPE, stderr=PIPE)
        await child.wait()
        return await iperf.stop(child)

    assert asyncio.run(asyncio.wait_for(scenario(), 30)) == "over\n"


def install(folder, monkeypatch, said):
    program = folder / "iperf3"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("said", "version", "fragile"),
    [
        ("iperf 3.12 (cJSON 1.7.15)\nLinux vm", "3.12", True),
        ("iperf 3.1.3\n", "3.1.3", True),
        ("iperf 3.18 (cJSON 1.7.15)\nLinux vm", "3.18", False),
        ("iperf 3.19.1+ (cJSON 1.7.15)\n", "3.19.1+", False),
        ("iperf 4.0-beta1\n", "4.0-beta1", False),
        ("", "", False),
    ],
)
def test_the_version_of_iperf3_tells_whether_a_malformed_message_ends_it(monkeypatch, tmp_path, said, version, fragile):
    install(tmp_path, monkeypatch, said)
    assert iperf.installed_version() == version
    assert iperf.is_fragile(version) is fragile


@pytest.mark.parametrize(
    ("said", "probe", "logged", "warned"),
    [
        ("iperf 3.12", "auto", "bandwidth tests use iperf3 3.12", True),
        ("iperf 3.18", "auto", "bandwidth tests use iperf3 3.18", False),
        ("iperf 3.12", "native", "bandwidth tests use the native engine", False),
    ],
)
def test_a_monitor_logs_its_iperf3_and_warns_of_a_fragile_one(
    monkeypatch, tmp_path, caplog, said, probe, logged, warned
):
    install(tmp_path, monkeypatch, said)
    caplog.set_level(logging.INFO)
    iperf.log_engine(probe)
    assert logged in caplog.messages
    assert any("can crash versions before 3.18" in each for each in caplog.messages) is warned
