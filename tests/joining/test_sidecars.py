"""The processes beside a trainer of another launcher: a monitor is started again, and none outlives the trainer."""

import contextlib
import os
import signal
import sys
import time
from dataclasses import replace

import psutil
from kit.run_processes import is_gone, wait_until
from trimtab.launch.joining.foreign import _why_not_measured
from trimtab.launch.joining.host_layout import HostEndpoint
from trimtab.launch.processes.children import Children
from trimtab.launch.sidecars import Sidecars
from trimtab.run_files.layout import RunDirectory

CARD = HostEndpoint("a", "10.0.0.1", "eth0", 12000, True)
STAYS = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]


def monitors() -> list[psutil.Process]:
    """What runs `STAYS` below this process."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [each] if each.cmdline() == STAYS else []
    return found


def test_a_monitor_that_is_killed_is_started_again_and_ends_with_the_trainer(tmp_path):
    log = RunDirectory(tmp_path).log("monitor-0")
    with Children(has_threads=True) as children:
        Sidecars(children, RunDirectory(tmp_path), os.environ).start_monitor(0, STAYS)
        wait_until(lambda: len(monitors()) == 1)
        (first,) = monitors()
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: {each.pid for each in monitors()} - {first.pid})
        (second,) = monitors()
    wait_until(lambda: is_gone(second))
    assert "trimtab: the monitor ended with status 137; it is started again in 1 s" in log.read_text()


def test_a_monitor_that_waits_for_its_restart_ends_at_once(tmp_path):
    log = RunDirectory(tmp_path).log("monitor-0")
    with Children(has_threads=True) as children:
        Sidecars(children, RunDirectory(tmp_path), os.environ).start_monitor(0, ["false"])
        wait_until(lambda: log.exists() and "started again" in log.read_text())
        began = time.monotonic()
    assert time.monotonic() - began < 5
    wait_until(lambda: not [each for each in psutil.Process().children(recursive=True) if "sleep" in each.name()])


def test_a_monitor_starts_where_no_log_can_be_written_and_no_program_is_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "logs").touch()
    with Children(has_threads=True) as children:
        Sidecars(children, RunDirectory(tmp_path), {"PATH": str(tmp_path)}).start_metrics("127.0.0.1", 0)
        wait_until(lambda: [each for each in psutil.Process().children() if "metrics" in each.cmdline()])
    assert f"trimtab: the records in {tmp_path / 'logs'} are incomplete" in capsys.readouterr().err


def test_why_hosts_are_not_measured_is_told_with_what_to_do():
    assert _why_not_measured([CARD, CARD], "iperf3") == ""
    hosts = [CARD, replace(CARD, address="10.0.0.2", has_iperf3=False)]
    assert _why_not_measured(hosts, "auto") == "", "the monitor's own engine measures them"
    assert _why_not_measured(hosts, "iperf3") == (
        "iperf3 is not installed on 10.0.0.2; install it on every host, or set spec.network.probe to auto"
    )
    by_ipv6 = _why_not_measured([replace(CARD, address="fd00:77::1"), replace(CARD, address="fd00:77::2")], "auto")
    assert by_ipv6.startswith("monitors speak IPv4 alone, and the ranks meet by IPv6 (fd00:77::1, fd00:77::2); give")
