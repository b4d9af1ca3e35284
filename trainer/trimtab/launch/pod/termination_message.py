"""The container's termination message: why it ended, where Kubernetes shows it."""

from __future__ import annotations

import contextlib
from pathlib import Path

#: The file in which Kubernetes reads the message, unless the container names another (``terminationMessagePath``).
DEFAULT_PATH = Path("/dev/termination-log")
#: Bytes of the message that Kubernetes keeps.
LIMIT = 4096

#: Counters of the container's processes that the kernel killed for memory: control groups version 2, then 1.
_OOM_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))


def write(message: str, path: Path = DEFAULT_PATH) -> None:
    """Write the message, shortened to `LIMIT`. Outside a pod there is nowhere to write it, and nobody reads it."""
    with contextlib.suppress(OSError):
        path.write_bytes(shorten(message))


def shorten(message: str) -> bytes:
    """Shorten the message to `LIMIT` bytes: its first line, and as much of its end as there is room for."""
    text = message.encode()
    if len(text) <= LIMIT:
        return text
    head = text.split(b"\n", 1)[0][: LIMIT // 2] + b"\n...\n"
    return head + text[len(head) - LIMIT :]


def num_oom_kills(counters: tuple[Path, ...] = _OOM_COUNTERS) -> int:
    """Count the processes of this container that the kernel killed for memory; 0 where it does not count them."""
    for path in counters:
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return 0
