"""Prints the state that a monitor publishes, one JSON line a revision: ``print_network.py ADDRESS``."""

import json
import signal
import sys
import time

from trimtab_api.netmon.client import watch


def show(view):
    print(json.dumps({"at": time.monotonic(), **vars(view)}, default=vars), flush=True)


with watch(sys.argv[1], on_change=show):
    signal.pause()
