"""The operator as a whole: watches feed the queue, workers empty it, one process leads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kubernetes.client import ApiClient
from trimtab_api.names import possible_jobs
from trimtab_api.rpc.certificates import Certificates

from trimtab_operator.children.owned import shared_name
from trimtab_operator.children.secret import certificates_in
from trimtab_operator.decisions import pods
from trimtab_operator.kube.api import Api, RefusedError, Unreachable
from trimtab_operator.kube.election import Election
from trimtab_operator.kube.informers import STUCK_SECONDS, Informer
from trimtab_operator.kube.labels import JOB_NAME, MANAGED_BY, MANAGER
from trimtab_operator.kube.rate_limit import RateLimit
from trimtab_operator.kube.resources import JOBS, PODS, SECRETS, TRAINING_JOBS, Object, controller_name, object_key
from trimtab_operator.kube.work_queue import WorkQueue
from trimtab_operator.observability import metrics
from trimtab_operator.observability.health import HealthServer
from trimtab_operator.observability.job_metrics import JobMetrics
from trimtab_operator.rank0.client import Rank0Client
from trimtab_operator.reconcile.caches import PodCache, trim_batch_job, trim_training_job
from trimtab_operator.reconcile.reconciler import Reconciler
from trimtab_operator.settings import Settings

LEASE = "trimtab-operator"
#: Seconds between readings of the gauges.
_GAUGE_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Operator:
    """Everything that runs in one operator process.

    ``on_stopped_leading`` is called when the process no longer leads: it must then exit.
    """

    def __init__(self, client: ApiClient, settings: Settings, on_stopped_leading: Callable[[], None]) -> None:
        rate = settings.requests_per_second
        self._api = Api(client, RateLimit(rate, burst=int(2 * rate)))
        self._settings = settings
        self._queue = WorkQueue()
        self._stopped = threading.Event()
        self._workers: list[threading.Thread] = []
        namespace = settings.watched_namespace
        self._jobs = Informer(
            self._api, TRAINING_JOBS, namespace, trim_training_job, self._job_changed, self._job_removed
        )
        self._children = Informer(
            self._api,
            JOBS,
            namespace,
            trim_batch_job,
            self._child_changed,
            self._child_removed,
            label_selector=f"{MANAGED_BY}={MANAGER},{JOB_NAME}",
        )
        self._pods = PodCache()
        self._pod_watch = Informer(
            self._api,
            PODS,
            namespace,
            pods.trim_pod,
            self._pod_changed,
            self._pods.remove,
            label_selector=JOB_NAME,
        )
        self._rank0 = Rank0Client(self._certificates, self._queue.add)
        self._job_metrics = JobMetrics(self._jobs.all, self._rank0, settings.most_job_series)
        self._reconciler = Reconciler(self._api, settings, self, self._rank0)
        self._election = Election(
            client, settings.namespace, LEASE, settings.identity, self._on_started_leading, on_stopped_leading
        )
        self.health = HealthServer(settings.port, self._liveness_error, self._readiness_error)

    def start(self) -> None:
        """Watch, and stand for election; return at once."""
        metrics.REGISTRY.register(self._job_metrics)
        for informer in self._informers:
            informer.start()
        threading.Thread(target=self._read_gauges, name="gauges", daemon=True).start()
        self._election.start()
        self.health.start()  # last, since a probe takes a thread that has not begun for one that has ended

    def stop(self) -> None:
        """Finish what is being done, then let another lead at once."""
        self._stopped.set()
        self._queue.close()
        for worker in self._workers:
            worker.join()
        self._rank0.stop()
        self._election.resign()
        self.health.stop()
        metrics.REGISTRY.unregister(self._job_metrics)

    def job(self, namespace: str, name: str) -> Object | None:
        """Return the TrainingJob of that name, as last seen."""
        return self._jobs.get(namespace, name)

    def batch_job(self, namespace: str, name: str) -> Object | None:
        """Return the Job of that name, as last seen."""
        return self._children.get(namespace, name)

    def pods(self, namespace: str, name: str) -> list[Object]:
        """Return the pods of the Job of that name, as last seen."""
        return self._pods.of(namespace, name)

    @property
    def _informers(self) -> tuple[Informer, ...]:
        return self._jobs, self._children, self._pod_watch

    def _on_started_leading(self) -> None:
        """Start the workers once elected: from here on this process writes."""
        _log.info("%s leads", self._settings.identity)
        metrics.IS_LEADER.set(1)
        for informer in self._informers:  # to decide before all is listed could create what already exists
            while not informer.wait_until_synced(1.0):
                if self._stopped.is_set():
                    return
        self._rank0.start()
        for number in range(self._settings.num_workers):
            worker = threading.Thread(target=self._work, name=f"worker-{number}", daemon=True)
            worker.start()
            self._workers.append(worker)  # after its start, or a probe would take it for one that has ended

    def _work(self) -> None:
        while (key := self._queue.get()) is not None:
            with metrics.RECONCILE_SECONDS.time():
                result = self._reconcile(key)
            metrics.RECONCILES.labels(result=result).inc()

    def _reconcile(self, key: str) -> str:
        try:
            seconds = self._reconciler.reconcile(key)
        except (RefusedError, *Unreachable) as error:
            conflict = isinstance(error, RefusedError) and error.reason == "Conflict"
            delay = self._queue.failed(key)
            if not conflict:  # a conflict only says that the object has changed since it was read
                _log.warning("%s: %s; trying again in %.1f s", key, error, delay)
            return "conflict" if conflict else "refused"
        except Exception:
            _log.exception("%s: trying again in %.1f s", key, self._queue.failed(key))
            return "error"
        self._queue.done(key)
        if seconds is not None:
            self._queue.add_later(key, seconds)
        return "ok"

    def _job_changed(self, job: Object) -> None:
        # Among many new jobs, every one gets its pods before any gets its status, which would take as long again.
        self._queue.add(object_key(job["metadata"]["namespace"], job["metadata"]["name"]), urgent="status" not in job)

    def _job_removed(self, job: Object) -> None:
        # After a new list the cache holds a deleted object for a moment longer.
        self._queue.add_later(object_key(job["metadata"]["namespace"], job["metadata"]["name"]), 0.1)

    def _child_changed(self, batch_job: Object) -> None:
        # By its name: anybody may edit its labels and its owner. To reconcile a job that it is not of costs little.
        for job in possible_jobs(batch_job["metadata"]["name"]):
            self._queue.add(object_key(batch_job["metadata"]["namespace"], job))

    def _child_removed(self, batch_job: Object) -> None:
        for job in possible_jobs(batch_job["metadata"]["name"]):
            self._queue.add_later(object_key(batch_job["metadata"]["namespace"], job), 0.1)

    def _pod_changed(self, pod: Object) -> None:
        if self._pods.put(pod) and controller_name(pod):
            for job in possible_jobs(controller_name(pod)):
                self._queue.add(object_key(pod["metadata"]["namespace"], job))

    def _certificates(self, namespace: str, name: str) -> Certificates | None:
        job = self.job(namespace, name)
        if job is None:
            return None
        try:
            secret = self._api.get(SECRETS, namespace, shared_name(name))
        except (RefusedError, *Unreachable) as error:
            _log.warning("%s/%s: the job's certificates could not be read: %s", namespace, name, error)
            return None
        return certificates_in(secret, job["metadata"]["uid"]) if secret else None

    def _liveness_error(self) -> str | None:
        """Return the reason to restart this process; None while it is well."""
        for informer in self._informers:
            if informer.seconds_since_turn > STUCK_SECONDS:
                return f"the watch of {informer.resource.plural} has not got on for {STUCK_SECONDS:g} s"
        if not self._election.is_alive:
            return "it does not stand for election"
        if any(not worker.is_alive() for worker in self._workers):
            return "a worker has ended"
        return None

    def _readiness_error(self) -> str | None:
        waiting = [informer.resource.plural for informer in self._informers if not informer.wait_until_synced(0)]
        return f"has not yet seen {', '.join(waiting)}" if waiting else None

    def _read_gauges(self) -> None:
        while not self._stopped.wait(_GAUGE_SECONDS):
            metrics.QUEUE_LENGTH.set(
                len(self._queue) if self._workers else 0
            )  # a standby's queue fills, since no worker empties it
            metrics.QUEUE_WAIT_SECONDS.set(self._queue.longest_wait)
            for informer in self._informers:
                silence = informer.seconds_since_progress
                metrics.WATCH_SILENCE_SECONDS.labels(resource=informer.resource.plural).set(silence)
