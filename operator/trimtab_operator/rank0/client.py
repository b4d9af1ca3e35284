"""A client of rank 0 of every running job, which reads its status over gRPC with the job's own certificates.

Pods thus need no rights on the API server. One thread watches all jobs. Rank 0 sends at its own pace, news at once,
and, just before its pod ends, how the training ended. So the operator has the true last figures of a finished job,
which it could no longer ask for.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import cast

import grpc.aio
from trimtab_api.names import TRAINER_STATUS_PORT, worker_host
from trimtab_api.rpc.certificates import Certificates
from trimtab_api.rpc.channels import format_grpc_error, open_async_channel
from trimtab_api.throttling import Backoff, TokenBucket
from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc

from trimtab_operator.decisions.observed_state import BatchJob, ObservedState
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.kube.resources import object_key
from trimtab_operator.kube.text import on_one_line, truncate
from trimtab_operator.rank0.sanitize import MAX_MESSAGE_BYTES, Rank0Status

#: Seconds between two statuses of a job that has no other plan or state.
INTERVAL_SECONDS = 5.0
#: Seconds between two attempts to reach a rank 0 that does not answer, at first and at most; each wait is 1.5 times the
#: one before.
RETRY_SECONDS = 2.0
LONGEST_RETRY_SECONDS = 10.0
#: Failed attempts after which the certificates are read anew: somebody may have deleted the Secret.
_ATTEMPTS_BY_CERTIFICATES = 10

#: Seconds without a message from rank 0 after which the user is told why: a trainer takes a while to start.
SILENT_SECONDS = 60.0

#: A job's burst of messages that are read without a pause, each of which costs a reconcile, and the seconds for each
#: further one. An honest rank 0 sends one in `INTERVAL_SECONDS`, and one with each change of plan or state.
NEWS_RECONCILES, SECONDS_PER_NEWS_RECONCILE = 10, 2.0
#: Most characters of the reason why a job is silent: a server may refuse with any text.
_LONGEST_CAUSE = 512

_log = logging.getLogger(__name__)

#: The certificates of a job, by namespace and name; None if there are none (yet).
FetchCertificates = Callable[[str, str], Certificates | None]
#: Address of a job's rank 0 (``host:port``), by namespace, name and the name of its Kubernetes Job.
Address = Callable[[str, str, str], str]


def rank0_address(namespace: str, name: str, batch_job: str) -> str:
    """Return the address of a job's rank 0, by the DNS name of worker 0's pod."""
    return f"{worker_host(name, namespace, 0, batch_job)}:{TRAINER_STATUS_PORT}"


@dataclass
class _Followed:
    """The state of one attempt of a job."""

    namespace: str
    name: str
    job_uid: str
    job_name: str
    last_message_at: float
    """When its last message came, or when it was first followed (monotonic clock)."""
    unreachable_reason: str = ""
    """The reason why no message has come for long; empty while messages come."""
    latest: Rank0Status | None = None
    progress: Progress = field(default_factory=Progress)
    certificates: Certificates | None = None
    """The certificates as they were last read; None: they are to be read."""
    is_ready: bool = True
    """True if there is a worker that could answer."""
    watch: Future[None] | None = None
    reconciles: TokenBucket = field(
        default_factory=lambda: TokenBucket(NEWS_RECONCILES, 1, period=SECONDS_PER_NEWS_RECONCILE)
    )


class Rank0Client:
    """A reader of the followed jobs' statuses.

    ``changed`` is called with ``namespace/name`` when a job has news.
    """

    def __init__(
        self, fetch: FetchCertificates, changed: Callable[[str], None], address: Address = rank0_address
    ) -> None:
        self._fetch = fetch
        self._changed = changed
        self._address = address
        self._followed: dict[str, _Followed] = {}
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="training-status", daemon=True)

    def start(self) -> None:
        """Start the thread that watches."""
        self._thread.start()

    def stop(self) -> None:
        """End all watches and the thread."""
        if not self._thread.is_alive():
            return
        with self._lock:
            uids = list(self._followed)
        for uid in uids:
            self._drop(uid)
        asyncio.run_coroutine_threadsafe(_end_all_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def latest(self, uid: str) -> Rank0Status | None:
        """Return rank 0's last message; None if none has come in this attempt."""
        with self._lock:
            followed = self._followed.get(uid)
            return followed.latest if followed else None

    def progress(self, uid: str) -> Progress:
        """Return the attempt's progress, by all messages of rank 0."""
        with self._lock:
            followed = self._followed.get(uid)
            return followed.progress if followed else Progress()

    def since_progress(self, uid: str) -> float | None:
        """Return the seconds since the message with the attempt's last new step; None before any message."""
        with self._lock:
            followed = self._followed.get(uid)
            if followed is None or followed.latest is None:
                return None
            return followed.progress.seconds_without_progress + time.monotonic() - followed.last_message_at

    @property
    def num_streams(self) -> int:
        """Number of jobs whose rank 0 sends, or is being called."""
        with self._lock:
            return sum(followed.watch is not None and not followed.watch.done() for followed in self._followed.values())

    def unreachable_reason(self, uid: str) -> str:
        """Return why no message has come for `SILENT_SECONDS` though all workers are ready; empty if one has."""
        with self._lock:
            followed = self._followed.get(uid)
            return followed.unreachable_reason if followed else ""

    def follow(self, observed: ObservedState) -> None:
        """Watch a job from now on if workers of it are ready.

        When none is ready any longer, the last message holds until the attempt is over or the job's end is in the
        status. Only one job of a name is followed: an earlier job of that name is dropped.
        """
        for uid in self._named(observed.namespace, observed.name):
            if uid != observed.uid:
                self._drop(uid)
        batch_job = observed.owned_job
        if batch_job is None or batch_job.is_deleting or batch_job.is_suspended or observed.status.is_final:
            self._drop(observed.uid)
            return
        with self._lock:
            followed = self._of_this_attempt(observed, batch_job)
            if followed is None:
                return
            followed.is_ready = batch_job.ready > 0
            if followed.latest is None and batch_job.ready < observed.job.spec.workers:
                followed.last_message_at, followed.unreachable_reason = (
                    time.monotonic(),
                    "",
                )  # worker 0 may be one that is missing
            ended = followed.watch is None or followed.watch.done()
            told_all = followed.latest is not None and followed.latest.is_final
            if followed.is_ready and ended and not told_all:
                followed.watch = asyncio.run_coroutine_threadsafe(self._watch(observed.uid, followed), self._loop)

    def forget(self, namespace: str, name: str) -> None:
        """Stop watching jobs of that name."""
        for uid in self._named(namespace, name):
            self._drop(uid)

    def _named(self, namespace: str, name: str) -> list[str]:
        """Return the uids of the jobs of that name: one, or for a moment also the earlier job that it replaces."""
        with self._lock:
            return [uid for uid, each in self._followed.items() if (each.namespace, each.name) == (namespace, name)]

    def _of_this_attempt(self, observed: ObservedState, batch_job: BatchJob) -> _Followed | None:
        """Return the state of the attempt, made here once one of its workers is ready; None before.

        The state of an earlier attempt is dropped.
        """
        followed = self._followed.get(observed.uid)
        if followed is not None and followed.job_uid != batch_job.uid:
            _cancel(self._followed.pop(observed.uid))
            followed = None
        if followed is None and batch_job.ready > 0:
            followed = self._followed[observed.uid] = _Followed(
                observed.namespace, observed.name, batch_job.uid, batch_job.name, time.monotonic()
            )
        return followed

    def _drop(self, uid: str) -> None:
        with self._lock:
            followed = self._followed.pop(uid, None)
        if followed is not None:
            _cancel(followed)

    async def _watch(self, uid: str, followed: _Followed) -> None:
        """Read rank 0's messages to the final one, and connect again whenever the connection breaks.

        The watch ends early once no worker is ready: there is then no rank 0 to answer.
        """
        in_vain, last_message_at = 0, followed.last_message_at
        while followed.is_ready:
            if in_vain % _ATTEMPTS_BY_CERTIFICATES == 0:
                followed.certificates = None
            try:
                if await self._read_stream(uid, followed):
                    return
            except grpc.aio.AioRpcError as error:  # rank 0 is starting or ending; the pods tell which
                self._note_unreachable(followed, f"{self._address_of(followed)}: {format_grpc_error(error)}")
            except Exception:  # must not end the watches of other jobs
                _log.exception("%s/%s: the status of rank 0 could not be read", followed.namespace, followed.name)
            in_vain = in_vain + 1 if followed.last_message_at == last_message_at else 0
            last_message_at = followed.last_message_at
            await asyncio.sleep(Backoff(RETRY_SECONDS, LONGEST_RETRY_SECONDS, factor=1.5).delay(max(0, in_vain - 1)))

    async def _read_stream(self, uid: str, followed: _Followed) -> bool:
        """Read one stream of statuses; return whether the last was final.

        Each message costs a reconcile, so the stream is read only as fast as the job may cause one. Flow control holds
        further messages back at their sender.

        Raises:
            AioRpcError: If the connection breaks.
        """
        if followed.certificates is None:
            followed.certificates = await asyncio.to_thread(self._fetch, followed.namespace, followed.name)
        if followed.certificates is None:
            self._note_unreachable(
                followed, "the Secret with its certificates is not there, or does not hold what the operator put there"
            )
            return False
        address = self._address_of(followed)
        is_final = False
        async with open_async_channel(address, followed.certificates, MAX_MESSAGE_BYTES) as channel:
            request = status_pb2.WatchStatusRequest(interval_seconds=INTERVAL_SECONDS)
            stub = cast("status_pb2_grpc.TrainerStatusAsyncStub", status_pb2_grpc.TrainerStatusStub(channel))
            async for said in stub.WatchStatus(request):
                while not followed.reconciles.take(time.monotonic()):
                    await asyncio.sleep(followed.reconciles.seconds_to_level(1, time.monotonic()))
                message = Rank0Status.sanitize(said)
                with self._lock:
                    if self._followed.get(uid) is not followed:
                        return True
                    now = time.monotonic()
                    followed.progress = followed.progress.on_message(
                        followed.latest, message, now - followed.last_message_at
                    )
                    followed.latest = message
                    followed.last_message_at, followed.unreachable_reason = now, ""
                is_final = message.is_final
                self._changed(object_key(followed.namespace, followed.name))
        return is_final

    def _address_of(self, followed: _Followed) -> str:
        return self._address(followed.namespace, followed.name, followed.job_name)

    def _note_unreachable(self, followed: _Followed, why: str) -> None:
        """Keep the reason why no message comes, and report it, once none has come for `SILENT_SECONDS`."""
        with self._lock:
            if followed.unreachable_reason or time.monotonic() - followed.last_message_at < SILENT_SECONDS:
                return
            cause = truncate(on_one_line(why), _LONGEST_CAUSE)
            followed.unreachable_reason = f"rank 0 has not reported for {SILENT_SECONDS:g} s: {cause}"
        self._changed(object_key(followed.namespace, followed.name))


def _cancel(followed: _Followed) -> None:
    if followed.watch is not None:
        followed.watch.cancel()


async def _end_all_others() -> None:
    """Wait until the loop's other tasks, which were cancelled, have ended."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*others, return_exceptions=True)
