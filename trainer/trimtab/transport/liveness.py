"""Distinguishes a machine that is gone from one whose process only stands still.

A process that evaluates, or is stopped, may send nothing for a long time; its kernel still acknowledges. A machine that
lost its power or its network acknowledges nothing. TCP alone notices that after a quarter of an hour, and never on an
idle connection. The kernel's option TCP_USER_TIMEOUT does not serve: it also closes a connection whose peer keeps
answering that its receive buffer is full.
"""

from __future__ import annotations

import socket
import struct
import time

#: Seconds without an acknowledgement after which a machine counts as gone.
SILENCE_SECONDS = 60.0

# struct tcp_info of <linux/tcp.h>: eight bytes, of which the third counts retransmissions of the oldest segment, then
# 32-bit numbers, of which the fifth counts segments not acknowledged and the thirteenth is the last acknowledgement's
# age in milliseconds.
_TCP_INFO = struct.Struct("=2xB21xI28xI")


def probe_when_idle(connection: socket.socket, silence: float) -> None:
    """Have the kernel probe an idle connection, and close it once its probes go unanswered for ``silence`` seconds."""
    num_probes = 4
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(silence / 2)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(silence / 2 / num_probes)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, num_probes)


class UnackedTimer:
    """Measures how long a peer's machine has left retransmitted data unacknowledged.

    One timer serves one wait on one peer.
    """

    def __init__(self) -> None:
        self._since: float | None = None

    def seconds(self, connection: socket.socket) -> float:
        """Return the time without an acknowledgement; 0 if no data is in flight, or none was retransmitted."""
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        num_retransmissions, num_unacknowledged, milliseconds = _TCP_INFO.unpack(info)
        if not (num_retransmissions and num_unacknowledged):
            self._since = None
            return 0.0
        now = time.monotonic()
        # The age alone may be that of a connection that was idle until just now.
        self._since = now if self._since is None else self._since
        return float(min(now - self._since, milliseconds / 1e3))
