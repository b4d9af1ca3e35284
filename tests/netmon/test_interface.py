"""The counters that are read: of which device, and when it was busy for which link."""

import math
import socket
import subprocess
import sys
import time

import pytest
from trimtab_api.errors import UserError
from trimtab_netmon.main import _parser, read_settings
from trimtab_netmon.probing.interface import InterfaceWatch, Reading, device_addresses, first_usable, require_device_of


def watch_of(rates, seconds=0.5, step=0.025):
    """A device through which so many bytes per second came and went, at the times before now that this says."""
    watch = InterfaceWatch("lo")
    start, total, readings = time.monotonic() - seconds, 0.0, []
    for index in range(round(seconds / step) + 1):
        readings.append(Reading(start + index * step, int(total), int(total)))
        total += rates(index * step - seconds) * step
    watch._readings.clear()
    watch._readings.extend(readings)
    watch.read = lambda: watch._readings[-1]
    return watch


def test_a_full_slow_link_beside_a_fast_one_is_busy():
    """4 MB/s is nothing to a link of 125 MB/s, and all that one of 4 MB/s carries."""
    watch = watch_of(lambda at: 4e6)
    watch.capacity = 125e6
    since = time.monotonic() - 0.1
    assert not watch.was_busy(since, 125e6)
    assert watch.was_busy(since, 4e6)


def test_what_passed_long_ago_is_not_busy_now_and_an_unknown_link_never_is():
    watch = watch_of(lambda at: 4e6 if at < -0.3 else 0.0)
    assert not watch.was_busy(time.monotonic() - 0.1, 4e6)
    assert watch.was_busy(time.monotonic() - 0.45, 4e6)
    assert not watch.was_busy(time.monotonic() - 0.45, 0.0)


def test_what_always_left_is_less_than_what_left_in_a_burst():
    watch = watch_of(lambda at: 8e6 if -0.2 < at < -0.1 else 2e6)
    now = time.monotonic()
    assert watch.least_sent(0.1, now - 0.4) == pytest.approx(2e6, rel=0.1)
    assert watch.least_sent(0.1, now - 0.05) == math.inf, "too short to say"
    assert watch.sending_rate(0.3) > 3e6


@pytest.mark.parametrize(
    "listen", ["127.0.0.1", "localhost", "127.0.5.5", "0.0.0.0", "192.0.2.77", "no-such-host.invalid"]
)
def test_the_device_that_has_the_address_is_the_one_whose_counters_count(listen):
    require_device_of(listen, "lo")


def test_every_device_with_an_address_is_found():
    assert ("lo", "127.0.0.1") in device_addresses()


@pytest.mark.parametrize("device", ["eth0", "lo:1", "nodev0"])
def test_another_device_is_refused_by_name(device):
    with pytest.raises(UserError, match=r"does not have the address 127\.0\.0\.1 of --listen.*has it: lo"):
        require_device_of("127.0.0.1", device)


def test_a_monitor_that_listens_on_one_device_and_counts_on_another_says_so_in_one_line():
    other = next((name for _, name in socket.if_nameindex() if name != "lo"), None)
    if other is None:
        pytest.skip("this machine has no network device but loopback")
    argv = [sys.executable, "-m", "trimtab_netmon.main", "serve", "--rank", "0", "--peers", "127.0.0.1:9"]
    argv += ["--listen", "127.0.0.1:9", "--interface", other]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        f"trimtab-netmon: --interface: '{other}': does not have the address 127.0.0.1 of --listen, so its counters are "
        "of other traffic; name the device that has it: lo\n"
    )


@pytest.mark.parametrize("names", ["lo", "lo,lo", "nowhere0,lo", " nowhere0 , lo ,eth0", ",lo"])
def test_of_a_list_of_devices_the_first_with_an_address_is_taken(names):
    assert first_usable(names) == "lo"


def test_a_list_of_devices_without_an_address_is_refused():
    with pytest.raises(
        UserError, match=r"^--interface: 'nowhere0,nowhere1': names no network device with an IPv4 .*lo"
    ):
        first_usable("nowhere0,nowhere1")


def test_a_single_device_is_taken_as_it_is():
    assert first_usable("nowhere0") == "nowhere0"


def test_the_monitor_takes_a_list():
    flags = ["--rank", "0", "--peers", "127.0.0.1:29401", "--listen", "127.0.0.1:29401", "--interface", "nowhere0,lo"]
    assert read_settings(_parser().parse_args(["serve", *flags])).interface == "lo"
