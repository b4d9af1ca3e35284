"""What one rank of a process group must tell the others when it can no longer exchange with them.

A communicator carries no reasons, and NCCL's does not even end when another rank's does. So they are written to the
process group's store, where whoever fails looks for the cause, and a watcher on each rank ends its own communicator.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

_FAILED, _LEFT = "trimtab/failed", "trimtab/left"
#: Seconds between two looks of the watcher.
_SECONDS_BETWEEN_LOOKS = 1.0
#: Longest that a look at the store may take; its server may be gone, with rank 0.
_PATIENCE = timedelta(seconds=5)


class Notices:
    """Those of one process group; none of the methods raises."""

    def __init__(self, store: Any, rank: int) -> None:
        """``store`` is one that all its ranks share."""
        self._store, self._rank = store, rank
        self._ended = threading.Event()

    @classmethod
    def of(cls, process_group: dist.ProcessGroup | None) -> Notices:
        """Written to the store by which the process group was formed."""
        group = process_group or dist.distributed_c10d._get_default_group()
        return cls(group.get_group_store().clone(), dist.get_rank(process_group))

    def post_failure(self, peer: int, reason: str) -> None:
        """The exchange cannot go on, and ``peer`` is at fault; the first who says so is heard."""
        with contextlib.suppress(RuntimeError):
            if not self._store.check([_FAILED]):
                self._store.set(_FAILED, json.dumps([self._rank, peer, reason]))

    def post_leaving(self) -> None:
        """This rank takes part in no further exchange; nobody is to be disturbed who does not need it."""
        with contextlib.suppress(RuntimeError):
            self._store.set(f"{_LEFT}/{self._rank}", "")

    def failure(self) -> tuple[int, int, str] | None:
        """Who says that the exchange cannot go on, who is at fault, and why."""
        with contextlib.suppress(RuntimeError):
            self._store.set_timeout(_PATIENCE)
            if self._store.check([_FAILED]):
                reporter, peer, reason = json.loads(self._store.get(_FAILED))
                return int(reporter), int(peer), str(reason)
        return None

    def has_left(self, rank: int) -> bool:
        """Whether that rank takes part in no further exchange."""
        with contextlib.suppress(RuntimeError):
            return bool(self._store.check([f"{_LEFT}/{rank}"]))
        return False

    def watch(self, on_failure: Callable[[], None]) -> None:
        """Call ``on_failure`` once, on a thread of its own, when any rank posts a failure; until `close`."""

        def look() -> None:
            while not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
                if self.failure() is not None:
                    on_failure()
                    return

        threading.Thread(target=look, name="trimtab-notices", daemon=True).start()

    def close(self) -> None:
        """Watch no longer."""
        self._ended.set()
