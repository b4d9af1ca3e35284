"""Whether a store keeps what a rank writes, found out before training begins rather than at the first checkpoint."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

from trimtab.checkpoint.store import Store

#: The folder of what is written to find out; a checkpoint has another name.
FOLDER = "write-test"
#: Seconds for which one host's file is looked for on another: a network file system shows it late.
_LOOK_SECONDS = 20.0
_BETWEEN_SECONDS = 0.2
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def write_probe(store: Store, name: str) -> tuple[str, str]:
    """Write and read a small file.

    Returns:
        What the user must mend before training; and what may mend itself, such as a full disk.
    """
    data = name.encode()
    try:
        store.write(f"{FOLDER}/{name}", data)
        if store.read(f"{FOLDER}/{name}") != data:
            return "gives back other bytes than were written", ""
    except OSError as error:
        if error.errno in _NO_ROOM:
            return "", f"has no room ({error.strerror}); no checkpoint is written until there is some"
        return f"cannot be written ({error.strerror or error}); mend that", ""
    return "", ""


def find_probe(store: Store, name: str, now: Callable[[], float] = time.monotonic) -> bool:
    """Return whether what another rank has written under ``name`` is found here; wait a while for it."""
    deadline = now() + _LOOK_SECONDS
    while True:
        try:
            return store.read(f"{FOLDER}/{name}") == name.encode()
        except OSError:
            if now() > deadline:
                return False
        time.sleep(_BETWEEN_SECONDS)
