"""Imports torch once, and forks a rank at each request: ``server.py LAUNCHER COMMAND...``, a script.

Its standard input is a socket to the launcher (`trimtab.launch.preloading.forkserver`). The command is that of a rank,
and tells `ps` what the process is for. The script stays single-threaded: a thread could hold a lock while it forks.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import socket
import sys
from collections.abc import Callable

#: What ranks import before their first step. One that this version of a library does not have is left out.
PRELOADED = (
    "torch",
    "torch._dynamo",
    "torch.utils.data",
    "torch.distributed",
    "trimtab.session.attach",
    "trimtab.ddp.comm_hook",
)


def main() -> Callable[[], None]:
    """Serve until the launcher closes the socket. Return only in a forked rank: what the rank is to run."""
    from trimtab.launch.preloading.rank import Rank

    launcher, command = int(sys.argv[1]), sys.argv[2:]
    Rank.set_search_path(command)  # a script's folder hides installed modules of the same names
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"trimtab: the fork server does without {name}: {error}", file=sys.stderr)
    _check_threads()
    gc.collect()
    gc.freeze()  # a collection in a rank would write to, and so copy, the pages of all objects
    control = socket.socket(fileno=os.dup(0))  # a rank closes it, and keeps the number 0
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, 1, 8)
        if not request:
            os._exit(0)
        child = os.fork()
        if child == 0:
            if os.fork() != 0:
                os._exit(0)  # the launcher becomes the rank's parent
            control.close()
            atexit.register(gc.unfreeze)  # the interpreter's end frees all objects
            try:
                return Rank(launcher, *descriptors).become()
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        os.waitpid(child, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _check_threads() -> None:
    """Exit if this process has threads. Threads that end before a fork (OpenBLAS's) do no harm."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    num_threads = len(os.listdir("/proc/self/task"))
    if num_threads > 1:
        sys.exit(f"trimtab: the imports have started {num_threads - 1} threads; ranks cannot fork from this process")


if __name__ == "__main__":
    run = main()
    run()  # by the main module itself: what comes after is the interpreter's own end
