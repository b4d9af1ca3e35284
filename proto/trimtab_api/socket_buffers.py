"""The largest socket buffers that the kernel grants, asked of the kernel itself: its files are not shown everywhere.

``/proc/sys/net/core/rmem_max`` and ``wmem_max`` exist in network namespaces other than the first only since about Linux
6.11. Every pod and every emulated host is such a namespace.
"""

from __future__ import annotations

import socket

#: More bytes than any kernel grants; twice as many still fit into the kernel's integer.
_MORE_THAN_GRANTED = (1 << 30) - 1


def largest_buffer(option: int) -> int:
    """Return the largest buffer that the kernel grants a process without privileges, in bytes.

    Args:
        option: ``socket.SO_SNDBUF`` or ``socket.SO_RCVBUF``.

    Returns:
        The limit as a process may ask for it. The kernel reserves twice as much, for its own bookkeeping.

    Raises:
        OSError: No socket can be made.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, option, _MORE_THAN_GRANTED)
        return probe.getsockopt(socket.SOL_SOCKET, option) // 2
