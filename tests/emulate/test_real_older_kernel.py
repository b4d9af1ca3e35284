"""The monitor, the emulator and an adaptive run on a real older kernel, where IPv6 is missing too."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.olderkernel, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
#: Tests of what a kernel offers. Those that need the speed of a real machine are left out.
TESTS = [
    "tests/api/test_socket_buffers.py",
    "tests/netmon/test_engines.py",
    "tests/netmon/test_interface.py",
    "tests/netmon/test_iperf.py",
    "tests/netmon/test_bandwidth_prober.py",
    "tests/emulate/test_emulator.py::test_the_loopback_of_a_host_is_up",
    "tests/emulate/test_older_kernels.py",
]


def test_the_monitor_the_emulator_and_an_adaptive_run_work_on_linux_6_1():
    """Output goes where this test's goes: pytest shows it with ``-s``, or where the test failed."""
    tests = [sys.executable, "-m", "pytest", "-v", "--color=no", "-p", "no:cacheprovider", "--require", *TESTS]
    with subprocess.Popen([ROOT / "scripts/older-kernel", *tests]) as kernel:
        try:
            assert kernel.wait(1400) == 0
        finally:
            kernel.terminate()
