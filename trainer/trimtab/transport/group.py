"""The ranks that exchange gradients together, by one thread that compresses and one that communicates."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy
from functools import partial
from typing import TypeVar

import torch
import torch.distributed as dist

from trimtab.transport.base import HAS_ENDED, HAS_LEFT, CommunicationError, StepTag, Transport
from trimtab.transport.primitives import all_gather
from trimtab.transport.rendezvous.mesh import Listener, connect, connect_process_group
from trimtab.transport.rendezvous.tcp import meet
from trimtab.transport.rendezvous.torch_store import meet_in_store
from trimtab.transport.subgroup import Subgroup
from trimtab.transport.worker_thread import StreamWorker

T = TypeVar("T")

#: Seconds a rank waits for one that stands still. A dead process is noticed at once, a dead machine in a minute or two.
DEFAULT_DEADLINE = 1800.0
#: Seconds that a script's end may wait for an exchange under way, to tell the other ranks.
_SECONDS_TO_TELL = 2.0


class Group:
    """Ranks joined by a `Transport`, with one lane that communicates and one that compresses.

    Jobs run one at a time in the order submitted, which must be the same on every rank for those that communicate. Such
    a job that raises, for whatever reason, ends the group on every rank: each raises a `CommunicationError` that names
    the rank at fault, and so does all that is submitted later.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.step_tag = StepTag()
        """Tag of the jobs submitted from now on: the same on every rank, or their messages fail."""
        self.extra_links: tuple[Group, ...] = ()
        """The same ranks over further connections, closed with this group; each link's jobs have an order of their own.

        Links over other interfaces come first, then those that share the first interface.
        """
        self._open_extra_links: Callable[[], Group | None] | None = None
        self.hosts: tuple[tuple[int, ...], ...] = tuple((rank,) for rank in range(transport.size))
        """The ranks of each host, in order, the same on every rank; set by the code that joins the ranks."""
        self._failure: BaseException | None = None
        self._progress: Callable[[], str] = lambda: ""
        self._process: int | None = None
        """Id of the process that is to tell the others of its end."""
        self._compression = StreamWorker("trimtab-compression", transport.device, finishes_at_exit=True)
        # A script that fails elsewhere exits in the midst of a job, which tells the peers.
        self._communication = StreamWorker("trimtab-communication", transport.device, finishes_at_exit=False)

    def offer_extra_links(self, open_one: Callable[[], Group | None] | None) -> None:
        """Have `join_links` open further connections by ``open_one``, which all ranks call together.

        Args:
            open_one: Connects the same ranks over the same interface once more; its answer None on every rank, and
                None in its place, say that they cannot.
        """
        self._open_extra_links = open_one

    def add_extra_links(self, *links: Group) -> None:
        """Take over further connections of the same ranks, which are closed with this group."""
        self.extra_links += links

    @property
    def can_open_extra_links(self) -> bool:
        """True if the ranks may connect once more over the same interface."""
        return self._open_extra_links is not None

    def tag_jobs(self, tag: StepTag) -> None:
        """Tag the jobs that are submitted from now on; the tag is the same on every rank, or messages fail."""
        self.step_tag = tag

    @classmethod
    def meet(
        cls,
        host: str,
        port: int,
        rank: int,
        num_ranks: int,
        deadline: float = DEFAULT_DEADLINE,
        *,
        secret: bytes,
        say: Callable[[list[int]], None] = lambda missing: None,
    ) -> Group:
        """Join the ranks that meet at rank 0's ``host:port``, over sockets of our own; each calls it.

        Args:
            host: Rank 0's address.
            port: Rank 0's port.
            rank: This process's rank.
            num_ranks: Number of ranks.
            deadline: Seconds that a wait may last without a byte moving.
            secret: By which the ranks authenticate each other.
            say: Called on rank 0 with the missing ranks.

        Raises:
            CommunicationError: A rank is missing, or cannot be reached.
            UserError: There is no secret and the address is not of this machine, or no usable interface.
        """
        listener = Listener.open(num_ranks)
        with listener.listener:
            met = meet(host, port, rank, num_ranks, deadline, secret=secret, endpoint=listener.endpoint, say=say)
            return cls(connect(rank, met.endpoints, listener, secret, met.attempt, deadline))

    @classmethod
    def meet_in_store(
        cls,
        host: str,
        port: int,
        rank: int,
        num_ranks: int,
        deadline: float = DEFAULT_DEADLINE,
        *,
        secret: bytes = b"",
        say: Callable[[list[int]], None] = lambda missing: None,
    ) -> Group:
        """Join ranks that another launcher started, which meet in torch's store at ``host:port``; see `meet`.

        Without a ``secret`` the ranks agree on one, which a mere reader of the store does not learn.
        """
        listener = Listener.open(num_ranks)
        with listener.listener:
            met, store = meet_in_store(host, port, rank, num_ranks, deadline, endpoint=listener.endpoint, say=say)
            secret = secret or met.secret
            group = cls(connect(rank, met.endpoints, listener, secret, met.attempt, deadline))
            group.transport.secret = secret
        group.submit(lambda: all_gather(group.transport, torch.zeros(0, dtype=torch.uint8))).result()
        del store  # rank 0's serves the others until all have come through
        return group

    @classmethod
    def connect(
        cls,
        process_group: dist.ProcessGroup | None = None,
        deadline: float = DEFAULT_DEADLINE,
        *,
        secret: bytes = b"",
    ) -> Group:
        """Join the ranks of ``process_group`` (None: all); every one of them calls it together.

        Messages go over sockets of our own, by the job's ``secret`` if there is one. If the process group is NCCL's,
        they lie on GPUs, and it sums over the ranks. No wait passes ``deadline`` seconds without a byte moving.
        """
        return cls(connect_process_group(process_group, deadline, secret))

    @property
    def rank(self) -> int:
        """Rank of this process, from 0 to ``size - 1``."""
        return self.transport.rank

    @property
    def size(self) -> int:
        """Number of ranks: N."""
        return self.transport.size

    @property
    def num_bytes(self) -> int:
        """Payload bytes this rank sent so far."""
        return self.transport.num_bytes

    @property
    def num_messages(self) -> int:
        """Messages this rank sent so far."""
        return self.transport.num_messages

    def part(self, ranks: Sequence[int]) -> Group:
        """Return some of the ranks, this one among them, as a group whose jobs run on this group's threads."""
        part = copy(self)
        part.transport = Subgroup(self.transport, ranks)
        part.hosts = tuple((rank,) for rank in range(len(ranks)))
        return part

    def join_links(self, num_links: int) -> tuple[Group, ...]:
        """Return this group and its extra links, ``num_links`` or more in all if they can be joined.

        All ranks call it together, between steps.

        Raises:
            CommunicationError: A rank cannot be reached.
        """
        while self._open_extra_links is not None and 1 + len(self.extra_links) < num_links:
            if (joined := self._open_extra_links()) is None:
                break
            self.add_extra_links(joined)
        return (self, *self.extra_links)

    def submit(self, job: Callable[[], T], uses: object = ()) -> Future[T]:
        """Run ``job`` on the communication thread, after the earlier ones; ``uses``: see `StreamWorker.submit`."""
        return self._communication.submit(partial(self._communicate, job, self.step_tag), uses)

    def compress(self, job: Callable[[], T], uses: object = ()) -> Future[T]:
        """Run ``job``, which does not communicate, on the compression thread, after those submitted before it."""
        return self._compression.submit(job, uses)

    def tell_of_end(self, progress: Callable[[], str]) -> None:
        """Tell the other ranks, if the script ends without `close`, why and how far it had come.

        Args:
            progress: How far this rank has come, such as "12 training steps taken". It is told with every leave, and
                noted on errors that another rank has caused.
        """
        self._progress, self._process = progress, os.getpid()
        atexit.register(self._tell_of_end)

    def _tell_of_end(self) -> None:
        if self._failure is not None or os.getpid() != self._process:  # a forked child's end is none of training's
            return
        error = getattr(sys, "last_value", None)  # what ended the script
        reason = HAS_ENDED if error is None else f"ended with {type(error).__name__}: {str(error)[:300]}"
        with contextlib.suppress(Exception):  # where an exchange is under way, its own error tells the others
            self.submit(lambda: self.transport.leave(self._with_progress(reason))).result(_SECONDS_TO_TELL)

    def _with_progress(self, reason: str) -> str:
        progress = self._progress()
        return f"{reason} ({progress})" if progress else reason

    def close(self) -> None:
        """Finish what was submitted and leave; every rank calls it, in any order."""
        atexit.unregister(self._tell_of_end)
        for link in self.extra_links:
            link.close()
        self._compression.close()
        self._communication.close()
        if self._failure is None:  # for a rank that expects more of this one than it takes part in
            self.transport.leave(self._with_progress(HAS_LEFT))
        self.transport.close()

    def _communicate(self, job: Callable[[], T], step_tag: StepTag) -> T:
        if self._failure is not None:
            raise self._failure
        self.transport.sequence += 1
        self.transport.step_tag = step_tag
        try:
            result = job()
            self.transport.flush()
        except BaseException as error:
            self._failure = error
            if isinstance(error, CommunicationError):
                if progress := self._progress():
                    error.add_note(f"this rank: {progress}")
                self.transport.abort(error.peer, error.reason)
            else:
                self.transport.abort(self.rank, f"failed: {type(error).__name__}: {error}")
            raise
        return result
