"""Real processes that meet as ranks over loopback, kept between tests because importing torch takes seconds."""

from __future__ import annotations

import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

import torch
import torch.distributed as dist
from trimtab.kernels.warm_up import warm_up
from trimtab.transport.group import Group
from trimtab.transport.rendezvous import process_group
from trimtab.transport.tcp import SocketTransport
from trimtab.wire import index_code

SECONDS_TO_ANSWER = 120.0


def _serve(rank: int, deadline: float, backend: str, connection: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    if backend == "nccl":
        os.environ.update(environment_on_one_gpu(rank))
        torch.cuda.set_device(0)
    groups: dict[int, Group] = {}
    met_at = ""
    while (job := connection.recv()) is not None:
        function, size, store, in_process_group, arguments = job
        try:
            if (in_process_group and store != met_at) or (not in_process_group and size not in groups):
                _leave_process_group()
                process_group.initialize(backend, rank, size, SECONDS_TO_ANSWER, init_method=f"file://{store}")
                dist.barrier()  # Gloo fails on a rank that still connects while another has left already
                met_at = store
            if in_process_group:
                answer = function(rank, size, *arguments)
            else:
                if size not in groups:
                    groups[size] = Group.connect(None, deadline)
                _leave_process_group()  # a test may form one of its own
                groups[size].transport.chunk_bytes = SocketTransport.chunk_bytes  # a test before may have changed it
                answer = function(groups[size], *arguments)
                _leave_process_group()
            if not dist.is_initialized() or dist.get_backend() != "gloo":
                met_at = ""
            connection.send_bytes(pickle.dumps((True, answer, met_at)))
        except BaseException as error:
            said = (type(error), str(error), getattr(error, "peer", None), traceback.format_exc())
            connection.send_bytes(pickle.dumps((False, said, "")))


def _leave_process_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def environment_on_one_gpu(rank: int) -> dict[str, str]:
    """Lets ranks share a GPU, which NCCL refuses to ranks of one host: each poses as a host of its own."""
    return {
        "NCCL_HOSTID": f"rank-{rank}",
        "NCCL_IB_DISABLE": "1",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "lo",
    }


class RankPool:
    """Processes that run functions as the ranks of a group. Those of a run that failed are replaced before the next."""

    def __init__(self, deadline: float = 30.0, backend: str = "gloo") -> None:
        """``deadline``: seconds that a rank of a `Group` waits without a byte moving.

        ``backend``: of the process groups; where it is NCCL's, all ranks share the first GPU, and only
        `run_in_process_group` serves.
        """
        warm_up(torch.device("cpu"))  # compiled here and kept on disk, not by every process at once
        index_code.warm_up()
        self._context = get_context("forkserver")  # the server imports torch once, for all
        self._context.set_forkserver_preload(
            ["torch", "torch.distributed", "trimtab.session.session", "trimtab.sparsifiers"]
        )
        self._deadline, self._backend = deadline, backend
        self._folder = tempfile.TemporaryDirectory()
        self._num_stores = 0
        self._stores: dict[int, str] = {}
        """Where the ranks of the `Group` of each size meet."""
        self._met_at: dict[int, str] = {}
        """The store of the process group that each rank is in now; empty for none."""
        self._sizes: dict[str, int] = {}
        """Of the process group of each store."""
        self.processes: list[Any] = []
        self._connections: list[Any] = []

    def run(self, size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What ``function(group, *arguments)`` returned on ranks 0 .. ``size - 1`` of a `Group` that is kept.

        Raises `RankError` with what the first to fail raised.
        """
        for rank in range(size):
            self.tell(rank, function, size, *arguments)
        return self._answers(size)

    def run_in_process_group(self, size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The same of ``function(rank, size, *arguments)``, in a process group of torch's.

        It is the one of the call before, if that had as many ranks and none of them destroyed it.
        """
        met_at = {self._met_at.get(rank, "") for rank in range(size)}
        store = met_at.pop()
        if met_at or self._sizes.get(store) != size:
            store = self._new_store()
            self._sizes[store] = size
        for rank in range(size):
            self._send(rank, (function, size, store, True, arguments))
        return self._answers(size)

    def tell(self, rank: int, function: Callable[..., Any], size: int, *arguments: Any) -> None:
        """Have one rank begin ``function(group of that size, *arguments)``; all of the group must be told something."""
        if size not in self._stores:
            self._stores[size] = self._new_store()
        self._send(rank, (function, size, self._stores[size], False, arguments))

    def answer(self, rank: int) -> Any:
        """What the rank's function returned; raises `RankError` with what it raised."""
        assert self._connections[rank].poll(SECONDS_TO_ANSWER), f"rank {rank} hangs"
        succeeded, value, self._met_at[rank] = pickle.loads(self._connections[rank].recv_bytes())
        if not succeeded:
            raise RankError(*value)
        return value

    def close(self) -> None:
        """End every process."""
        for process, connection in zip(self.processes, self._connections, strict=True):
            process.kill()
            process.join()
            connection.close()
        self.processes.clear()
        self._connections.clear()
        self._stores.clear()
        self._met_at.clear()

    def _answers(self, size: int) -> list[Any]:
        try:
            return [self.answer(rank) for rank in range(size)]
        except BaseException:
            self.close()
            raise

    def _send(self, rank: int, job: tuple[Any, ...]) -> None:
        while len(self.processes) <= rank:
            ours, theirs = self._context.Pipe()
            arguments = (len(self.processes), self._deadline, self._backend, theirs)
            self.processes.append(self._context.Process(target=_serve, args=arguments, daemon=True))
            self.processes[-1].start()
            theirs.close()
            self._connections.append(ours)
        self._connections[rank].send(job)

    def _new_store(self) -> str:
        self._num_stores += 1
        return f"{self._folder.name}/{self._num_stores}"


class RankError(Exception):
    """What a rank raised."""

    def __init__(self, kind: type[BaseException], message: str, peer: int | None, trace: str) -> None:
        super().__init__(trace)
        self.kind, self.message, self.peer = kind, message, peer
