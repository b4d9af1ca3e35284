"""What is called as a process ends can start threads, as a client of an object store does for a new connection."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os
from concurrent.futures import ThreadPoolExecutor
from trimtab.process.exit_handlers import at_exit
pool = ThreadPoolExecutor()
at_exit(lambda: print("thread", pool.submit(lambda: 7).result(), flush=True))
at_exit(lambda: print("taken back", flush=True))()
if os.fork() == 0:
    raise SystemExit
os.wait()
"""


def test_at_exit_calls_once_in_this_process_while_threads_may_start() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "thread 7\n"
    assert done.stderr == ""
