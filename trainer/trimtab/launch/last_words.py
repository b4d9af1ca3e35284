"""Why a container ended, where Kubernetes shows it: the termination message."""

from __future__ import annotations

import contextlib
from pathlib import Path

#: Where Kubernetes reads it, unless the container says otherwise (``terminationMessagePath``).
DEFAULT_PATH = Path("/dev/termination-log")
#: Bytes that Kubernetes keeps.
LIMIT = 4096

#: Where the kernel counts, for this container, the processes it killed for want of memory: control groups 2 and 1.
_OOM_COUNTERS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))


def leave(message: str, path: Path = DEFAULT_PATH) -> None:
    """Write the message, its beginning and its end if it is too long. Outside a pod nobody reads it."""
    with contextlib.suppress(OSError):
        path.write_bytes(shorten(message))


def shorten(message: str) -> bytes:
    """The message in at most `LIMIT` bytes: the first line, and as much of the end as there is room for."""
    text = message.encode()
    if len(text) <= LIMIT:
        return text
    head = text.split(b"\n", 1)[0][: LIMIT // 2] + b"\n...\n"
    return head + text[len(head) - LIMIT :]


def num_oom_kills(counters: tuple[Path, ...] = _OOM_COUNTERS) -> int:
    """Processes of this container that were killed for want of memory so far; 0 where the kernel does not tell."""
    for path in counters:
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return 0
