"""The conditions of a status, each with its reason, its message and the time of its last change."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from trimtab_api.trainingjob.status import Condition, ConditionType, NetworkStatus, Status
from trimtab_api.units import format_bandwidth

from trimtab_operator.decisions.decide import Decision
from trimtab_operator.decisions.observed_state import ObservedState
from trimtab_operator.decisions.pods import Problem
from trimtab_operator.decisions.suspension import suspension_reason
from trimtab_operator.decisions.worker_problems import find_blocking_reason, unready_workers
from trimtab_operator.kube.events import WAITING_FOR_TRAINING
from trimtab_operator.kube.text import truncate, write_time

#: A condition before its time is known: type, whether it holds (None: unknown), reason, message.
_Draft = tuple[ConditionType, bool | None, str, str]


def conditions_of(observed: ObservedState, decision: Decision, after: Status) -> tuple[Condition, ...]:
    """Return all conditions of the status ``after``, whose other fields are complete."""
    blocking_reason = None if decision.restart else find_blocking_reason(observed, after.state)
    drafts = [_ready(observed, decision, after, blocking_reason), _started(observed, decision, after, blocking_reason)]
    if after.state == "Suspended" or observed.status.condition("Suspended") is not None:
        drafts.append(_suspended(observed, after))
    if after.network is not None:
        drafts.append(_network_degraded(observed, after.network))
    if (failing := _checkpoint_failing(observed)) is not None:
        drafts.append(failing)
    drafts += [_ended("Succeeded", decision, after), _ended("Failed", decision, after)]
    return tuple(condition(observed.status, draft, observed.generation, observed.now) for draft in drafts)


def _ready(observed: ObservedState, decision: Decision, after: Status, blocking_reason: Problem | None) -> _Draft:
    """Return condition Ready: the job trains with all its workers."""
    lost = unready_workers(observed) if after.state == "Running" else None
    if lost is not None:
        return "Ready", False, lost.reason, after.message
    reason: str = after.state
    if decision.blocking_reason:
        reason = "Blocked"
    elif blocking_reason is not None and decision.terminal_state is None:
        reason = blocking_reason.reason
    if _are_all_ready(observed, after) and reason in ("Starting", "Restarting") and decision.restart is None:
        if observed.rank0_status is None and observed.unreachable_reason:
            return "Ready", None, "Rank0Silent", after.message
        return "Ready", False, WAITING_FOR_TRAINING, after.message
    return "Ready", after.state == "Running", reason, after.message


def _started(observed: ObservedState, decision: Decision, after: Status, blocking_reason: Problem | None) -> _Draft:
    """Return condition Started: every worker has been ready since the job was made or resumed."""
    before = observed.status.condition("Started")
    had_started = before is not None and before.status == "True" and after.state != "Suspended"
    if after.state == "Running" or _are_all_ready(observed, after) or had_started:
        return "Started", True, "WorkersReady", "every worker has been ready"
    if decision.blocking_reason:
        return "Started", False, "Blocked", after.message
    if blocking_reason is not None:
        return "Started", False, blocking_reason.reason, after.message
    return "Started", False, "Suspended" if after.state == "Suspended" else "WaitingForWorkers", after.message


def _suspended(observed: ObservedState, after: Status) -> _Draft:
    """Return condition Suspended, with who has suspended the job."""
    if after.state == "Suspended":
        return "Suspended", True, suspension_reason(observed), after.message
    return "Suspended", False, "Resumed", after.message


def _ended(kind: Literal["Succeeded", "Failed"], decision: Decision, after: Status) -> _Draft:
    """Return condition Succeeded or Failed: the job has just ended so."""
    if decision.terminal_state is not None and after.state == kind:
        return kind, True, decision.terminal_state.reason, after.message
    return kind, False, after.state, after.message


def _are_all_ready(observed: ObservedState, after: Status) -> bool:
    return after.workers.ready == observed.job.spec.workers


def _network_degraded(observed: ObservedState, network: NetworkStatus) -> _Draft:
    """Return condition NetworkDegraded: the slowest link compared with the best that it has carried."""
    before = observed.status.condition("NetworkDegraded")
    was = before is not None and before.status == "True"
    best = network.best_bandwidth_bytes_per_second
    degraded = is_degraded(was, network.bandwidth_bytes_per_second, best)
    message = f"the slowest link carries {network.bandwidth}, the best of late is {format_bandwidth(best)}"
    return "NetworkDegraded", degraded, "BandwidthLow" if degraded else "BandwidthGood", message


def _checkpoint_failing(observed: ObservedState) -> _Draft | None:
    """Return condition CheckpointFailing; None while nothing is known of a job that keeps checkpoints.

    What was known stays so until rank 0 says otherwise: a restart writes its first checkpoint later.
    """
    if observed.job.spec.checkpoint is None:
        return "CheckpointFailing", False, "NoCheckpoints", "the job has no spec.checkpoint: a restart begins anew"
    said, before = observed.rank0_status, observed.status.condition("CheckpointFailing")
    if said is not None and said.checkpoint_problem:
        return "CheckpointFailing", True, "NotWritten", said.checkpoint_problem
    if said is not None and said.checkpoint is not None:
        return "CheckpointFailing", False, "Written", "the last checkpoint is whole"
    if before is None:
        return None
    return "CheckpointFailing", before.status == "True", before.reason, before.message


def condition(before: Status, draft: _Draft, generation: int, now: datetime) -> Condition:
    """Return the condition; its transition time is kept while its status stays the same."""
    kind, holds, reason, message = draft
    status: Literal["True", "False", "Unknown"] = "Unknown" if holds is None else "True" if holds else "False"
    old = before.condition(kind)
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=truncate(message),
        last_transition_time=old.last_transition_time if old and old.status == status else write_time(now),
        observed_generation=generation,
    )


#: The network counts as degraded by the best bandwidth of late. The best decays: otherwise a job that moved to a slower
#: network would be degraded for ever.
#: Bandwidth below this share of the best is degraded, and stays so until it is back above the second share.
DEGRADED_BELOW = 0.5
RECOVERED_ABOVE = 0.7
#: Seconds in which half of what the best has above the present bandwidth is forgotten.
HALF_LIFE_SECONDS = 6 * 3600.0


def best_of_late(best_bandwidth: float, bandwidth: float, seconds: float) -> float:
    """Return the best bandwidth, ``seconds`` after it was ``best_bandwidth``; bandwidths in bytes/s."""
    if best_bandwidth <= bandwidth:
        return bandwidth
    kept: float = 0.5 ** (max(0.0, seconds) / HALF_LIFE_SECONDS)
    return min(best_bandwidth, bandwidth + (best_bandwidth - bandwidth) * kept)  # a sum of floats may be above either


def is_degraded(was_degraded: bool, bandwidth: float, best_bandwidth: float) -> bool:
    """Return whether the slowest link is much slower than it has been; bandwidths in bytes/s."""
    share = bandwidth / best_bandwidth if best_bandwidth > 0 else 1.0
    return share < (RECOVERED_ABOVE if was_degraded else DEGRADED_BELOW)
