"""Ranks as threads of this process, for what a group computes; `rank_pool` has real processes, for how it travels."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from kit.in_process import InProcess, Queues
from trimtab.transport.group import Group


class RankThreads:
    """Runs functions as the ranks of a `Group` whose messages cross by queues. Groups are kept, as a pool's are."""

    def __init__(self) -> None:
        self._groups: dict[int, list[Group]] = {}

    def run(self, size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What ``function(group, *arguments)`` returned on ranks 0 .. ``size - 1``; raises what one of them raised."""
        if size not in self._groups:
            queues: Queues = {(a, b): SimpleQueue() for a in range(size) for b in range(size)}
            self._groups[size] = [Group(InProcess(rank, size, queues)) for rank in range(size)]
        groups = self._groups[size]
        try:
            with ThreadPoolExecutor(size) as pool:
                done = [pool.submit(function, group, *arguments) for group in groups]
                return [each.result() for each in done]
        except BaseException:
            self._groups.pop(size, None)  # its queues may hold messages
            raise

    def close(self) -> None:
        """End the threads."""
        for groups in self._groups.values():
            for group in groups:
                group.close()
        self._groups.clear()
