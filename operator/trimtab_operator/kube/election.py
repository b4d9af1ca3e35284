"""One operator at a time: the official client's Lease election, which here survives an unreachable API server.

The official loop goes by the wall clock, and adds its pauses and its last requests to its deadline. A leader could go
on for 15 s although another may take over after 12. So a second thread watches the deadline.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from kubernetes.client import ApiClient, CoordinationV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

from trimtab_operator.kube.api import Unreachable

#: Seconds without renewal after which another may lead.
LEASE_SECONDS = 12
#: Seconds after the request of the last renewal at which a leader has lost; less than `LEASE_SECONDS`.
RENEW_DEADLINE_SECONDS = 8
#: Seconds between attempts.
RETRY_SECONDS = 2
#: Seconds one request may take.
REQUEST_SECONDS = 3.0

_log = logging.getLogger(__name__)


class Election:
    """Calls ``on_started_leading`` once when elected, and ``on_stopped_leading`` when leadership is gone.

    After that nothing may be written.
    """

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        on_started_leading: Callable[[], None],
        on_stopped_leading: Callable[[], None],
    ) -> None:
        logging.getLogger("leaderelection").setLevel(logging.WARNING)  # it reports every renewal
        self._lock = Lock(client, name, namespace, identity)
        self._election = LeaderElection(
            Config(
                self._lock,
                lease_duration=LEASE_SECONDS,
                renew_deadline=RENEW_DEADLINE_SECONDS,
                retry_period=RETRY_SECONDS,
                onstarted_leading=on_started_leading,
                onstopped_leading=on_stopped_leading,
            )
        )
        self._on_stopped_leading = on_stopped_leading
        self._thread = threading.Thread(target=self._election.run, name="election", daemon=True)

    def start(self) -> None:
        """Stand for election from now on."""
        self._thread.start()
        threading.Thread(target=self._watch_over, name="lease", daemon=True).start()

    def _watch_over(self) -> None:
        """Wait until a lease that was held has not been renewed in time; resigning loses nothing."""
        seconds: float | None = RENEW_DEADLINE_SECONDS
        while seconds is not None and seconds > 0:
            time.sleep(seconds)
            seconds = self._lock.seconds_left()
        if seconds is not None:
            _log.error("the lease was not renewed for %d s", RENEW_DEADLINE_SECONDS)
            self._on_stopped_leading()

    @property
    def is_alive(self) -> bool:
        """True while this process stands for election or leads."""
        return self._thread.is_alive()

    def resign(self) -> None:
        """Give up the lease, if held, so that another process need not wait for it to run out."""
        self._lock.resign()


class Lock(LeaseLock):
    """A Lease whose requests end in time; an unreachable server is a failed attempt, not the end."""

    def __init__(self, client: ApiClient, name: str, namespace: str, identity: str) -> None:
        super().__init__(name, namespace, identity)  # type: ignore[no-untyped-call]
        self.api_instance = CoordinationV1Api(_HurriedClient(client.configuration))
        self._resigned = False
        self._writing = threading.Lock()
        self._renewed_at: float | None = None

    def seconds_left(self) -> float | None:
        """Return the seconds until leadership is lost for want of a renewal; None if this process has resigned."""
        if self._resigned:
            return None
        if self._renewed_at is None:
            return float(RENEW_DEADLINE_SECONDS)
        return self._renewed_at + RENEW_DEADLINE_SECONDS - time.monotonic()

    def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        """Read the lease; return whether it could be read, and its record or the error."""
        try:
            found, record = super().get(name, namespace)  # type: ignore[no-untyped-call]
        except Unreachable as error:
            return False, ApiException(status=0, reason=str(error))
        return found, record

    def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Create the lease unless this process has resigned; return whether it was created."""
        return self._unless_resigned(super().create, name, namespace, election_record)

    def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Renew the lease unless this process has resigned; return whether it was renewed."""
        return self._unless_resigned(super().update, name, namespace, updated_record)

    def resign(self) -> None:
        """Give the lease up, if this process holds it, and renew it no more."""
        with self._writing:
            self._resigned = True
            try:
                found, record = self.get(self.name, self.namespace)
                if found and record.holder_identity == self.identity:
                    record.holder_identity = ""
                    super().update(self.name, self.namespace, record)  # type: ignore[no-untyped-call]
            except Unreachable as error:
                _log.warning("the lease could not be released; it expires by itself: %s", error)

    def _unless_resigned(self, write: Callable[..., bool], *arguments: Any) -> bool:
        with self._writing:
            asked_at = time.monotonic()
            try:
                written = not self._resigned and write(*arguments)
            except Unreachable as error:
                _log.warning("the lease could not be renewed: %s", error)
                return False
            if written:
                self._renewed_at = asked_at
            return written


class _HurriedClient(ApiClient):
    """A client whose requests all take at most `REQUEST_SECONDS`."""

    def call_api(self, *arguments: Any, **options: Any) -> Any:
        options["_request_timeout"] = options.get("_request_timeout") or REQUEST_SECONDS
        return super().call_api(*arguments, **options)
