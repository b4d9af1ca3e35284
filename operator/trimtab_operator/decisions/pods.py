"""The state of a worker as its pod tells it, with the reason for a failure in a user's words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from trimtab_api.steps_of_attempts import failed_before_first_step
from trimtab_api.trainingjob.pod_template import TRAINER_CONTAINER

from trimtab_operator.kube.labels import COMPLETION_INDEX, JOB_NAME
from trimtab_operator.kube.resources import Object, controller_uid
from trimtab_operator.kube.text import parse_time, printable, write_time

#: Reasons that a waiting container gives while its pod's volumes are mounted, and at other times.
_MOUNTING = {"ContainerCreating", "PodInitializing"}
#: Reasons that pass by themselves, and are no problem.
_PASSING = {*_MOUNTING, ""}
#: Reasons that a container gives whose command could not be started.
_NOT_STARTED = {"StartError", "ContainerCannotRun"}
#: Most characters of a container's termination message that are repeated.
_LONGEST_MESSAGE = 600
#: Seconds of grace up to which a pod is to end after its deletion; of more, Kubernetes' own sum overflows.
_LONGEST_GRACE = (2**63 - 1) // 10**9
#: Labels that are read here.
_LABELS = (JOB_NAME, COMPLETION_INDEX)


@dataclass(frozen=True)
class Problem:
    """The reason why a worker does not run."""

    reason: str
    """One word: ImagePullBackOff, Unschedulable, OOMKilled, Error."""
    message: str
    """A sentence naming the worker."""


@dataclass(frozen=True)
class Pod:
    """One worker's pod."""

    worker: int
    owner_uid: str
    """Uid of the Job that made it: anybody may give a pod the labels, but not the owner."""
    phase: str
    disruption: Problem | None
    """Set if the cluster took the pod away, through no fault of its own."""
    failure: Problem | None
    """Set if it failed."""
    failed_at: str
    """When its first container failed (RFC 3339); empty if unknown."""
    exit_code: int
    """The exit code of its first container that failed, above 128 if a signal ended it; 0 if unknown."""
    blocking_reason: Problem | None
    """Set if something keeps it from starting for now, or if one of its sidecars ends again and again."""
    node: str = ""
    """The node that it was placed on; empty while it is not placed."""
    to_end_by: str = ""
    """When a deleted pod should have ended at the latest (RFC 3339); empty if it is not being deleted."""
    deleted_at: str = ""
    """When its deletion was asked for (RFC 3339); empty if it is not being deleted."""
    is_ready: bool = False
    is_unready: bool = False
    """True if it runs and its trainer has not ended, yet it is not ready: its node is away, or a probe fails."""
    uid: str = ""
    is_memory_eviction: bool = False
    """True if its node evicted it for want of memory."""
    node_is_lost: bool = False
    """True if its node is gone or cannot be reached: then the pod may never end, or only once the node is back. The pod
    itself tells this in part; the `Observer` adds the node's answer if something depends on it."""
    has_no_step: bool = False
    """True if it failed, and its ranks certainly took no step."""
    is_mounting: bool = False
    """True if a node has it and none of its containers has begun: it may be waiting for its volumes."""

    @property
    def has_ended(self) -> bool:
        """True if none of the pod's containers runs, or ever will again."""
        return self.phase in ("Succeeded", "Failed")

    @classmethod
    def read(cls, pod: Object) -> Self:
        """Return the part of a pod that decisions need."""
        labels, status = pod["metadata"].get("labels", {}), pod.get("status", {})
        index = labels.get(COMPLETION_INDEX, "")
        worker = int(index) if index.isdecimal() else 0
        failed = _first_failed_container(status) if status.get("phase") == "Failed" else None
        to_end_by = pod["metadata"].get("deletionTimestamp") or ""
        return cls(
            worker=worker,
            owner_uid=controller_uid(pod),
            phase=status.get("phase", "Pending"),
            disruption=_disruption(worker, status),
            failure=_failure(worker, status, failed, bool(to_end_by)) if status.get("phase") == "Failed" else None,
            failed_at=failed["state"]["terminated"].get("finishedAt") or "" if failed else "",
            exit_code=failed["state"]["terminated"]["exitCode"] if failed else 0,
            blocking_reason=_obstacle(worker, status),
            node=pod.get("spec", {}).get("nodeName") or "",
            to_end_by=to_end_by,
            deleted_at=_deleted_at(pod["metadata"]),
            is_ready=_is_ready(status),
            is_unready=_is_unready(status),
            node_is_lost=_is_marked_unready(pod),
            uid=pod["metadata"].get("uid") or "",
            is_memory_eviction=_is_memory_eviction(status),
            has_no_step=failed is not None and _has_no_step(failed),
            is_mounting=_is_mounting(status),
        )


def trim_pod(pod: Object) -> None:
    """Cut a pod down, in place, to what `Pod.read` reads."""
    metadata, status = pod["metadata"], pod.get("status", {})
    labels = metadata.get("labels", {})
    of_metadata = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
    pod["metadata"] = {key: metadata[key] for key in of_metadata if key in metadata}
    owners = [owner for owner in metadata.get("ownerReferences", ()) if owner.get("controller")]
    pod["metadata"]["ownerReferences"] = [
        {key: owner[key] for key in ("kind", "name", "uid", "controller") if key in owner} for owner in owners
    ]
    pod["metadata"]["labels"] = {key: labels[key] for key in _LABELS if key in labels}
    kept = ("phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses")
    pod["status"] = {key: status[key] for key in kept if key in status}
    spec = pod.get("spec", {})
    pod["spec"] = {key: spec[key] for key in ("nodeName", "readinessGates") if key in spec}


def _deleted_at(metadata: Object) -> str:
    to_end_by = parse_time(metadata.get("deletionTimestamp"))
    if to_end_by is None:
        return ""
    grace = metadata.get("deletionGracePeriodSeconds") or 0
    return write_time(to_end_by - timedelta(seconds=grace if grace <= _LONGEST_GRACE else 0))


def _disruption(worker: int, status: Object) -> Problem | None:
    for condition in status.get("conditions", ()):
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            why = ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
            return Problem("Disrupted", f"worker {worker} was taken away: {why}")
    return None


def _is_memory_eviction(status: Object) -> bool:
    """Return whether a kubelet evicted the pod for want of memory, by the condition and the pod's message."""
    by_kubelet = any(
        condition["type"] == "DisruptionTarget"
        and condition["status"] == "True"
        and condition.get("reason") == "TerminationByKubelet"
        for condition in status.get("conditions", ())
    )
    said = (status.get("message"), *(condition.get("message") for condition in status.get("conditions", ())))
    return by_kubelet and any("low on resource: memory" in (text or "") for text in said)


def _failure(worker: int, status: Object, failed: Object | None, is_deleted: bool) -> Problem:
    if failed is None:
        if is_deleted and not (status.get("reason") or status.get("message")):
            return Problem("PodDeleted", f"the pod of worker {worker} was deleted before it ended, by whom is unknown")
        reason = status.get("reason") or "Failed"
        return Problem(reason, f"worker {worker} failed: {status.get('message') or reason}")
    ended = failed["state"]["terminated"]
    code = ended.get("exitCode")
    if ended.get("reason") == "OOMKilled":
        remedy = "it needed more memory than its limit; raise resources.limits.memory or use less"
        return Problem("OOMKilled", f"worker {worker} was killed for memory in container {failed['name']}: {remedy}")
    words = printable((ended.get("message") or "").strip()[-_LONGEST_MESSAGE:])
    how = f"worker {worker} failed: container {failed['name']} ended with exit code {code}"
    return Problem(ended.get("reason") or "Error", f"{how}; last it said: {words}" if words else how)


def _has_no_step(failed: Object) -> bool:
    """Return whether the trainer's container reports no step, or its command could not be started."""
    ended = failed["state"]["terminated"]
    words = (ended.get("message") or "").strip()
    return failed["name"] == TRAINER_CONTAINER and (
        ended.get("reason") in _NOT_STARTED or failed_before_first_step(words)
    )


def _first_failed_container(status: Object) -> Object | None:
    """Return the trainer if it failed, else the container that failed first; None if none did."""
    failed = [
        container
        for container in _containers(status)
        if (container.get("state", {}).get("terminated") or {}).get("exitCode")
    ]
    return min(
        failed,
        key=lambda container: (
            container["name"] != TRAINER_CONTAINER,
            container["state"]["terminated"].get("finishedAt") or "",
        ),
        default=None,
    )


def _is_ready(status: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions", ())
    )


def _is_unready(status: Object) -> bool:
    if status.get("phase") != "Running":
        return False
    ready = [condition["status"] for condition in status.get("conditions", ()) if condition["type"] == "Ready"]
    trainer = [container for container in status.get("containerStatuses", ()) if container["name"] == TRAINER_CONTAINER]
    return "False" in ready and not any(container.get("state", {}).get("terminated") for container in trainer)


def _is_marked_unready(pod: Object) -> bool:
    """Return whether the node controller, not the kubelet, marked the pod unready: its node is unreachable.

    A kubelet says that a pod is not ready only where a container or a readiness gate is not.
    """
    status = pod.get("status", {})
    holds = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    has_gates = bool(pod.get("spec", {}).get("readinessGates"))
    return holds.get("Ready") == "False" and holds.get("ContainersReady") == "True" and not has_gates


def _is_mounting(status: Object) -> bool:
    if status.get("phase") not in (None, "Pending"):
        return False
    holding = {condition["type"] for condition in status.get("conditions", ()) if condition["status"] == "True"}
    if "PodReadyToStartContainers" in holding:  # the volumes are mounted; the pod waits for its images
        return False
    reasons = {(container.get("state", {}).get("waiting") or {}).get("reason", "") for container in _containers(status)}
    return bool(reasons) and reasons <= _MOUNTING


def _obstacle(worker: int, status: Object) -> Problem | None:
    phase = status.get("phase")
    if phase not in (None, "Pending", "Running"):
        return None
    crashing = next(
        filter(None, (_crash(worker, container) for container in status.get("initContainerStatuses", ()))), None
    )
    return crashing or (None if phase == "Running" else _obstacle_to_start(worker, status))


def _crash(worker: int, container: Object) -> Problem | None:
    """Return the failure of a sidecar that has not been well since, by its own words rather than Kubernetes'."""
    ends = (container.get(state, {}).get("terminated") for state in ("state", "lastState"))
    ended = next((end for end in ends if end and end.get("exitCode")), None)
    if ended is None or container.get("ready") or not container.get("restartCount"):
        return None
    how = f"container {container['name']} of worker {worker} ends with exit code {ended['exitCode']} again and again"
    lines = (ended.get("message") or "").strip().splitlines()
    words = printable(lines[-1].strip()[-_LONGEST_MESSAGE:]) if lines else ""
    return Problem("CrashLoopBackOff", f"{how}; last it said: {words}" if words else how)


def _obstacle_to_start(worker: int, status: Object) -> Problem | None:
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            reason = condition.get("reason", "Unschedulable")
            if reason == "SchedulingGated":
                return Problem(
                    reason, f"worker {worker} is held back by its schedulingGates; whoever set them lifts them"
                )
            return Problem(reason, f"worker {worker} cannot be placed: {condition.get('message') or reason}")
    for container in _containers(status):
        waiting = container.get("state", {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason not in _PASSING:
            said = waiting.get("message") or reason
            return Problem(reason, f"worker {worker} cannot start container {container['name']}: {reason}: {said}")
    return None


def _containers(status: Object) -> list[dict[str, Any]]:
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
