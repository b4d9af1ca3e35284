"""What a launcher made for its processes alone goes with it, also where it is killed."""

import subprocess
import sys
from pathlib import Path

from kit.run_processes import wait_until

KILLED = """
import os, signal
from trimtab.launch.processes.children import Children
with Children() as children:
    print(children.temporary_directory("trimtab-test-"), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_temporary_directory_of_a_killed_launcher_is_removed():
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as launcher:
        directory = Path(launcher.stdout.readline().strip())
    assert directory.is_absolute()
    wait_until(lambda: not directory.exists())
