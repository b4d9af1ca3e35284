"""One reconciliation of one TrainingJob: observe, decide, act, write the status. Safe to repeat at any time."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus

from trimtab_api.errors import UserError
from trimtab_api.trainingjob.load import read_training_job

from trimtab_operator.children.job import job_manifest, relabelled
from trimtab_operator.children.pod import account_of
from trimtab_operator.decisions.decide import Action, Decision, TerminalState, blocked, decide
from trimtab_operator.decisions.observed_state import ObservedState
from trimtab_operator.decisions.pod_creation_errors import PodCreationErrors
from trimtab_operator.decisions.policies.timers import spread
from trimtab_operator.kube.api import Api, RefusedError
from trimtab_operator.kube.events import EventRecorder
from trimtab_operator.kube.labels import OPERATOR, SUSPENDED
from trimtab_operator.kube.resources import JOBS, SERVICE_ACCOUNTS, TRAINING_JOBS, Object
from trimtab_operator.reconcile.apply import sync_children
from trimtab_operator.reconcile.keepers import EndedKeepers
from trimtab_operator.reconcile.observe import Cache, Observer, Rank0Statuses
from trimtab_operator.reconcile.whole_job import WholeJobs
from trimtab_operator.settings import Settings
from trimtab_operator.status.build import report, unreadable
from trimtab_operator.status.parse import read_status
from trimtab_operator.status.throttle import seconds_to_write
from trimtab_operator.status.writer import StatusWriter

#: Least seconds after which a job is reconciled again though no watch reported a change of it (see `spread`).
RESYNC_SECONDS = 600.0
#: Seconds after which the operator reads a Job that exists, though the watch does not show it.
_UNSEEN_SECONDS = 1.0
#: Seconds after which a job is reconciled again though the watch has not shown the Job that was created for it.
_CREATED_SECONDS = 2.0
#: Remedy for a job that can never run as it is written: a failed job stays failed.
_REMEDY = "delete the job, mend its file and create it anew"

#: Fields of a child whose content is the job's spec: a Job's spec, and a Secret's data.
_FIELDS_FROM_SPEC = ("spec", "data")
#: How the API server says that an admission webhook or policy refused an object.
_OF_A_POLICY = re.compile(
    r"^admission webhook \"[^\"]*\" denied the request|ValidatingAdmissionPolicy '[^']*' .*denied request"
)

_log = logging.getLogger(__name__)


class Reconciler:
    """A reconciler of jobs by key, ``namespace/name``.

    Many threads may call it, but no two with the same key at a time.
    """

    def __init__(
        self,
        api: Api,
        settings: Settings,
        cache: Cache,
        rank0: Rank0Statuses,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._settings = settings
        self._rank0 = rank0
        self._recorder = EventRecorder(api)
        self._pod_creation_errors = PodCreationErrors(api)
        self._whole_jobs = WholeJobs(api)
        self._clock = clock
        self._last_synced: dict[str, tuple[datetime, int]] = {}
        """When the children of each job were last seen to, and for which generation of the job."""
        self._ended_keepers = EndedKeepers(api)
        self._status_writer = StatusWriter(api, self._recorder, clock)
        is_outdated = self._status_writer.is_older_than_written
        self._observer = Observer(api, cache, rank0, self._pod_creation_errors, clock, is_outdated)

    def reconcile(self, key: str) -> float | None:
        """Observe a job and take the next step; return the seconds until the next reconciliation, if any is due.

        Raises:
            RefusedError: If the API server refuses for now; a later attempt may succeed.
            Unreachable: If the API server cannot be reached; a later attempt may succeed.
        """
        seconds = self._reconcile(key)
        self._recorder.flush(key)  # last, so that a job does not wait for its events
        return seconds

    def _reconcile(self, key: str) -> float | None:
        namespace, _, name = key.partition("/")
        resource = self._observer.get(namespace, name)
        if resource is None or "deletionTimestamp" in resource["metadata"]:
            self._forget(namespace, name)
            return None  # what it owned is the garbage collector's
        if resource["spec"].get("managedBy", OPERATOR) != OPERATOR:
            return None

        try:
            observed = self._observer.observe(resource)
            decision = self._act(observed, decide(observed))
        except UserError as mistake:
            self._leave(resource, str(mistake))
            return None  # the definition, the job or the operator changes before there is more to do
        if decision.action is Action.CREATE_BATCH_JOB:
            return _CREATED_SECONDS  # pods first: the watch brings the Job back, and then there is more to tell

        if decision.awaits_cause:
            self._rank0.follow(observed)
            return decision.requeue_after_seconds
        after = report(observed, decision)
        seconds_to_news = self._status_writer.seconds_to_news_write(key, observed.now)
        interval = spread(self._settings.status_interval, observed.uid)
        wait = seconds_to_write(observed.status, after, observed.now, interval, seconds_to_news)
        if wait == 0.0:
            self._status_writer.write(resource, observed.status, after)
            wait = None  # the watch will report this write, and that reconciles the job
        self._rank0.follow(observed)
        question = self._pod_creation_errors.seconds_to_question(observed)
        waits = (wait, decision.requeue_after_seconds, question, spread(RESYNC_SECONDS, observed.uid))
        return min(each for each in waits if each is not None)

    def _forget(self, namespace: str, name: str) -> None:
        self._rank0.forget(namespace, name)
        self._recorder.forget(f"{namespace}/{name}")
        self._pod_creation_errors.forget(f"{namespace}/{name}")
        self._last_synced.pop(f"{namespace}/{name}", None)
        self._ended_keepers.forget(f"{namespace}/{name}")
        self._status_writer.forget(f"{namespace}/{name}")

    def _act(self, observed: ObservedState, decision: Decision) -> Decision:
        """Carry a decision out; return the decision with its result."""
        self._ended_keepers.remove(observed)
        match decision.action:
            case Action.NOTHING if decision.terminal_state or decision.restart or not self._needs_repair(observed):
                return decision  # what has come to pass is written down before anything else
            case Action.NOTHING | Action.CREATE_BATCH_JOB:
                return self._make(observed, decision)
            case _:
                try:
                    self._change(observed, decision)
                except RefusedError as refusal:
                    if observed.status.is_final:
                        raise
                    return _refused(observed, decision, refusal)
        return decision

    def _change(self, observed: ObservedState, decision: Decision) -> None:
        """Delete a Job or the TrainingJob, or write to the Job."""
        namespace, batch_job = observed.namespace, decision.batch_job or observed.batch_job
        if decision.action is Action.DELETE_JOB:
            self._api.delete(TRAINING_JOBS, namespace, observed.name, observed.uid)
            return
        assert batch_job is not None
        match decision.action:
            case Action.DELETE_BATCH_JOB:
                self._api.delete(JOBS, namespace, batch_job.name, batch_job.uid)
            case Action.RENEW_BATCH_JOB:
                _log.warning("%s: the Job has created no pods and reports no error; recreating it", observed.key)
                self._api.delete(JOBS, namespace, batch_job.name, batch_job.uid, batch_job.version)
            case Action.SUSPEND_BATCH_JOB | Action.RESUME_BATCH_JOB:
                suspended = decision.action is Action.SUSPEND_BATCH_JOB
                annotations = {SUSPENDED: "true" if suspended else None}
                change = {"metadata": {"annotations": annotations}, "spec": {"suspend": suspended}}
                self._api.merge(JOBS, namespace, batch_job.name, change)
            case Action.LABEL_BATCH_JOB:
                self._api.apply(
                    JOBS, relabelled(observed.name, namespace, batch_job.name, batch_job.uid, batch_job.attempt)
                )

    def _make(self, observed: ObservedState, decision: Decision) -> Decision:
        """Create the Job, or sync the other children; for either the job is read whole."""
        with self._whole_jobs.read(observed) as whole:
            if whole is None:  # gone, or changed since: the watch is about to show it
                return replace(decision, action=Action.NOTHING, requeue_after_seconds=_UNSEEN_SECONDS)
            observed = replace(observed, job=read_training_job(whole, ignore_unknown=True))
            if decision.action is Action.CREATE_BATCH_JOB:
                return self._create(whole, observed, decision)
            return self._sync(observed, decision)

    def _create(self, resource: Object, observed: ObservedState, decision: Decision) -> Decision:
        """Create the Job, last, when its pods have all that they need, and once: a template never changes."""
        decision = self._sync(observed, decision)
        if decision.blocking_reason or decision.terminal_state:
            return decision
        labels = resource["metadata"].get("labels", {})
        manifest = job_manifest(
            observed.job,
            observed.namespace,
            observed.uid,
            observed.status.restarts,
            labels,
            self._settings,
            self._account_pull_secrets(observed),
        )
        try:
            self._api.create(JOBS, manifest)
        except RefusedError as refusal:
            if refusal.reason == "AlreadyExists":  # which the watch does not show: with a status it is asked for
                return Decision(requeue_after_seconds=_UNSEEN_SECONDS)
            if _is_final(refusal):
                message = f"spec.template: {refusal.message}; {_REMEDY}"
                return Decision(terminal_state=TerminalState("Failed", "InvalidTemplate", message))
            return _refused(observed, decision, refusal)
        return decision

    def _account_pull_secrets(self, observed: ObservedState) -> list[Object]:
        """Return the pull secrets of the pods' ServiceAccount, if the monitor's image's would displace them."""
        pod = observed.job.spec.template["spec"]
        if not self._settings.netmon_pull_secrets or pod.get("imagePullSecrets"):
            return []
        account = self._api.get(SERVICE_ACCOUNTS, observed.namespace, account_of(pod))
        return list((account or {}).get("imagePullSecrets") or ())

    def _sync(self, observed: ObservedState, decision: Decision) -> Decision:
        """Sync every child but the batch job."""
        try:
            blocking_reason = sync_children(self._api, observed, self._settings)
        except RefusedError as refusal:
            if decision.action is Action.CREATE_BATCH_JOB and _is_final(refusal):  # a spec too large for a Secret
                return Decision(
                    terminal_state=TerminalState("Failed", "InvalidSpec", f"spec: {refusal.message}; {_REMEDY}")
                )
            return _refused(observed, decision, refusal)
        if blocking_reason is not None:
            return blocked(observed, blocking_reason, decision)
        self._last_synced[observed.key] = (observed.now, observed.generation)
        return decision

    def _needs_repair(self, observed: ObservedState) -> bool:
        """Return whether the spec has changed, or children have not been synced for a while."""
        if observed.status.is_final or observed.owned_job is None or observed.owned_job.is_deleting:
            return False
        seen = (observed.now, observed.status.observed_generation)  # by this operator, or by the one before it
        ensured_at, generation = self._last_synced.setdefault(observed.key, seen)
        resync = spread(RESYNC_SECONDS, observed.uid)
        return generation != observed.generation or (observed.now - ensured_at).total_seconds() >= resync

    def _leave(self, resource: Object, mistake: str) -> None:
        """Report that the job cannot be read, and touch nothing: definition and operator are of different versions.

        The job's pods may train well, and the operator that made them may come back. On an upgrade the definition is
        newer than the operator for a while; on a rollback it is older.
        """
        before = read_status(resource)
        after = unreadable(before, mistake, resource["metadata"]["generation"], self._clock())
        if after != before:
            self._status_writer.write(resource, before, after)


def _is_final(refusal: RefusedError) -> bool:
    """Return whether an object can never be created because of the job's own spec.

    A template is immutable. But a policy or a webhook may be changed, whatever status and reason it refuses with.
    """
    if _OF_A_POLICY.search(refusal.message):
        return False
    if refusal.reason == "Invalid":
        return all(field.startswith(_FIELDS_FROM_SPEC) for field in refusal.fields)
    return refusal.reason == "BadRequest" or refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def _refused(observed: ObservedState, decision: Decision, refusal: RefusedError) -> Decision:
    """Return a blocked decision if somebody must lift the refusal (a quota, a rule, a webhook that is away).

    A refusal that may pass by itself is raised again.
    """
    is_webhook = refusal.status >= 500 and "webhook" in refusal.message
    if not is_webhook and (refusal.status in (404, 409, 429) or not 400 <= refusal.status < 500):
        raise refusal
    is_change = decision.action not in (Action.NOTHING, Action.CREATE_BATCH_JOB)
    what = f" to {decision.action.value}" if is_change else ""
    return blocked(observed, f"the API server refuses{what}: {refusal.message}", decision)
