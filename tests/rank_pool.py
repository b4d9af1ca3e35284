"""Real processes joined by Gloo on loopback, kept between tests because importing torch takes seconds."""

from __future__ import annotations

import io
import os
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

DEADLINE = 120.0


def _serve(rank: int, connection: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch.distributed as dist

    torch.set_num_threads(1)
    while (job := connection.recv()) is not None:
        function, size, store, arguments = job
        try:
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
            answer = io.BytesIO()
            torch.save(function(rank, size, *arguments), answer)
            connection.send(("ok", answer.getvalue()))
        except BaseException:
            connection.send(("failed", traceback.format_exc()))
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


class RankPool:
    """Processes that run functions as the ranks of a group; one that failed is replaced before the next run."""

    def __init__(self) -> None:
        self._context = get_context("spawn")
        self._ranks: list[tuple[Any, Any]] = []

    def run(self, function: Callable[..., Any], size: int, *arguments: Any) -> list[Any]:
        """``function(rank, size, *arguments)`` of ranks 0 .. ``size - 1``; raises what the first to fail raised."""
        while len(self._ranks) < size:
            self._ranks.append(self._start(len(self._ranks)))
        with tempfile.TemporaryDirectory() as folder:
            for _, connection in self._ranks[:size]:
                connection.send((function, size, Path(folder) / "store", arguments))
            try:
                return [self._answer(rank) for rank in range(size)]
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End every process."""
        for process, connection in self._ranks:
            process.kill()
            process.join()
            connection.close()
        self._ranks.clear()

    def _start(self, rank: int) -> tuple[Any, Any]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(rank, theirs), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _answer(self, rank: int) -> Any:
        _, connection = self._ranks[rank]
        assert connection.poll(DEADLINE), f"rank {rank} did not answer within {DEADLINE:g} s"
        state, value = connection.recv()
        assert state == "ok", f"rank {rank}:\n{value}"
        return torch.load(io.BytesIO(value), weights_only=False)
