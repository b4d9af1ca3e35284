"""Whether the machine at the other end of a connection is still there, though the process on it may stand still.

A process that evaluates, or is stopped, sends nothing for long, and that is well: its kernel still answers. A machine
that lost its power or its network answers nothing, and TCP by itself notices that after a quarter of an hour or, where
nothing is under way, never. The kernel's own option for it (TCP_USER_TIMEOUT) would not do: it also ends a connection
whose peer has answered all along that its buffer is full.
"""

from __future__ import annotations

import socket
import struct
import time

#: Seconds without an answer of a machine after which it counts as gone.
SILENCE_SECONDS = 60.0

# struct tcp_info of <linux/tcp.h>: eight bytes, of which the third counts retransmissions of the oldest segment, then
# 32-bit numbers, of which the fifth counts segments not acknowledged and the thirteenth is the last acknowledgement's
# age in milliseconds.
_TCP_INFO = struct.Struct("=2xB21xI28xI")


def probe_when_idle(connection: socket.socket, silence: float) -> None:
    """Have the kernel ask an idle connection's other end now and then; unanswered ``silence`` seconds, it is lost."""
    num_probes = 4
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(silence / 2)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(silence / 2 / num_probes)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, num_probes)


class Silence:
    """For how long a machine has not acknowledged what is sent to it again and again, as seen during one wait."""

    def __init__(self) -> None:
        self._since: float | None = None

    def seconds(self, connection: socket.socket) -> float:
        """The silence so far; 0 where nothing is under way, or where something has been acknowledged."""
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        num_retransmissions, num_unacknowledged, milliseconds = _TCP_INFO.unpack(info)
        if not (num_retransmissions and num_unacknowledged):
            self._since = None
            return 0.0
        now = time.monotonic()
        # The age alone may be that of a connection that was idle until just now.
        self._since = now if self._since is None else self._since
        return float(min(now - self._since, milliseconds / 1e3))
