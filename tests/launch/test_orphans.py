"""A launcher that is process 1 waits for orphans, and for nothing that it has started itself."""

from __future__ import annotations

import subprocess
import sys

#: A subreaper gets orphans as process 1 does. One child leaves an orphan; another, of its own session, ends with 3.
SCRIPT = """
import ctypes, os, subprocess, psutil
from trimtab.launch.processes.children import reap_orphans
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
reader, writer = os.pipe()
leaves = subprocess.Popen(
    ["sh", "-c", f"(read line <&{reader}; exit 0) & exit 0"], pass_fds=[reader], start_new_session=True
)
leaves.wait()
own = subprocess.Popen(["sh", "-c", "exit 3"], start_new_session=True)
me = psutil.Process()
orphan, = [child for child in me.children() if child.pid != own.pid]
os.close(writer)
while orphan.status() != psutil.STATUS_ZOMBIE or psutil.Process(own.pid).status() != psutil.STATUS_ZOMBIE:
    pass
reap_orphans()
print(psutil.pid_exists(orphan.pid), own.wait())
"""


def test_orphans_are_waited_for_and_own_children_are_not() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "False 3\n", ended.stderr
