"""What rank 0 of every running job says of its training, asked over gRPC with the job's own certificates.

Pods need no rights on the API server that way. One thread asks all of them; answers come by callback.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from trimtab_api.certificates import Certificates
from trimtab_api.channels import open_channel
from trimtab_api.names import TRAINER_STATUS_PORT, worker_host
from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc

from trimtab_operator.world import World

#: Seconds between two questions to the same job.
ASK_SECONDS = 5.0
#: Seconds that an answer may take.
ANSWER_SECONDS = 3.0

_log = logging.getLogger(__name__)

#: The certificates of a job, by namespace and name; None if there are none (yet).
FetchCertificates = Callable[[str, str], Certificates | None]
#: Where a job's rank 0 listens, by namespace and name: ``host:port``.
Address = Callable[[str, str], str]


def rank0_address(namespace: str, name: str) -> str:
    """By the DNS name of worker 0's pod."""
    return f"{worker_host(name, namespace, 0)}:{TRAINER_STATUS_PORT}"


@dataclass
class _Followed:
    namespace: str
    name: str
    channel: grpc.Channel | None = None
    latest: status_pb2.Status | None = None
    ask_at: float = 0.0


class TrainingStatus:
    """Asks the jobs that it was told to follow; ``changed`` is called with ``namespace/name`` when a job has news."""

    def __init__(
        self, fetch: FetchCertificates, changed: Callable[[str], None], address: Address = rank0_address
    ) -> None:
        self._fetch = fetch
        self._changed = changed
        self._address = address
        self._followed: dict[str, _Followed] = {}
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="training-status", daemon=True)

    def start(self) -> None:
        """Ask from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        self._thread.join()
        for uid in list(self._followed):
            self._drop(uid)

    def latest(self, uid: str) -> status_pb2.Status | None:
        """What rank 0 said last; None if nothing, or of an earlier attempt."""
        with self._lock:
            followed = self._followed.get(uid)
            return followed.latest if followed else None

    def follow(self, world: World) -> None:
        """Ask from now on if workers of the job are ready, no longer if none is: nobody would answer."""
        child = world.child
        runs = child is not None and child.ready > 0 and not child.is_deleting and not world.status.is_final
        if not runs:
            self._drop(world.uid)
            return
        with self._wake:
            if world.uid not in self._followed:
                self._followed[world.uid] = _Followed(world.namespace, world.name)
                self._wake.notify()

    def forget(self, namespace: str, name: str) -> None:
        """Ask no job of that name any longer."""
        with self._lock:
            gone = [uid for uid, each in self._followed.items() if (each.namespace, each.name) == (namespace, name)]
        for uid in gone:
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        with self._lock:
            followed = self._followed.pop(uid, None)
        if followed is not None and followed.channel is not None:
            followed.channel.close()

    def _run(self) -> None:
        while True:
            with self._wake:
                if self._stopped:
                    return
                now = time.monotonic()
                due = [(uid, each) for uid, each in self._followed.items() if each.ask_at <= now]
                if not due:
                    next_at = min((each.ask_at for each in self._followed.values()), default=None)
                    self._wake.wait(None if next_at is None else next_at - now)
                    continue
                for _, each in due:
                    each.ask_at = now + ASK_SECONDS
            for uid, each in due:
                try:
                    self._ask(uid, each)
                except Exception:  # one job's trouble is not the others'
                    _log.exception("rank 0 of %s/%s could not be asked", each.namespace, each.name)

    def _ask(self, uid: str, followed: _Followed) -> None:
        if followed.channel is None:
            certificates = self._fetch(followed.namespace, followed.name)
            if certificates is None:
                return
            address = self._address(followed.namespace, followed.name)
            followed.channel = open_channel(address, certificates)
        stub = status_pb2_grpc.TrainerStatusStub(followed.channel)
        answer = stub.GetStatus.future(status_pb2.GetStatusRequest(), timeout=ANSWER_SECONDS)
        answer.add_done_callback(lambda done: self._take(uid, followed, done))

    def _take(self, uid: str, followed: _Followed, done: grpc.Future[status_pb2.Status]) -> None:
        if done.cancelled() or done.exception() is not None:
            return  # it starts, or ends, or is on its way back: the pods tell of that
        with self._lock:
            if self._followed.get(uid) is not followed:
                return
            followed.latest = done.result()
        self._changed(f"{followed.namespace}/{followed.name}")
