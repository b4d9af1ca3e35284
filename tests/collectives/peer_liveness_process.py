"""Two ends of a connection on a loopback that goes down: what the one end says. Run in a network namespace of its own.

Argument: what is under way when the network goes, ``nothing`` or ``sending``; or ``full``, where the network stays and
the other end takes nothing more.
"""

from __future__ import annotations

import socket
import subprocess
import sys

import torch
from trimtab.transport.base import CommunicationError
from trimtab.transport.tcp import SocketTransport

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with socket.create_server(("127.0.0.1", 0)) as listener:
    ours = socket.create_connection(listener.getsockname())
    theirs, _ = listener.accept()
here, there = (
    SocketTransport(rank, {1 - rank: end}, deadline=9.0 if sys.argv[1] == "full" else 100.0, silence=3.0)
    for rank, end in enumerate((ours, theirs))
)
here.send(1, torch.ones(10))
here.flush()
there.receive(0, torch.empty(10))
if sys.argv[1] == "full":
    here.send(1, torch.ones(20_000_000))
else:
    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
if sys.argv[1] == "sending":
    here.send(1, torch.ones(10))
try:
    here.receive(1, torch.empty(10))
except CommunicationError as error:
    print(error)
