"""Times of status writes: changes of the job's life at once, training's figures once in a while. Pure."""

from __future__ import annotations

from datetime import datetime

from trimtab_api.trainingjob.status import ConditionType, Status

from trimtab_operator.kube.text import parse_time

#: Most seconds between two writes of a job that does not train yet: what its workers wait for is then the news.
STARTING_SECONDS = 10.0
_OF_TRAINING = ("step", "loss", "gain", "last_progress_time", "step_time", "plan", "network", "checkpoint")
#: Conditions that follow from what rank 0 says alone.
_CONDITIONS: tuple[ConditionType, ...] = ("NetworkDegraded", "CheckpointFailing")
#: Seconds by which a written time may be earlier than the write: it is cut to the second.
_CUT_SECONDS = 1.0


def seconds_to_write(
    before: Status, after: Status, now: datetime, interval: float, seconds_to_news: float = 0.0
) -> float | None:
    """Return the seconds until the new status may be written: 0 for now, None if nothing is new.

    A change in the job's life is written at once. News of training (see `brings_news`), which rank 0 can cause as often
    as it likes, waits ``seconds_to_news``. Other figures wait until the last write is certainly ``interval`` seconds
    old, or `STARTING_SECONDS` if that is less and the job does not train.
    """
    unstamped = {"last_update_time": None}
    if before.model_copy(update=unstamped) == after.model_copy(update=unstamped):
        return None
    written_at = parse_time(before.last_update_time)
    if _life(before) != _life(after) or written_at is None:
        return 0.0
    elapsed = max(0.0, (now - written_at).total_seconds())  # the clock of whoever wrote it may be ahead
    between = interval if after.state == "Running" else min(interval, STARTING_SECONDS)
    wait = max(0.0, between + _CUT_SECONDS - elapsed)
    return min(wait, seconds_to_news) if brings_news(before, after) else wait


def brings_news(before: Status, after: Status) -> bool:
    """Return whether training has another plan, its network is worse or better, or checkpoints fail or no longer do."""
    return _news(before) != _news(after)


def without_training(before: Status, after: Status) -> Status:
    """Return the new status with the old values of all that rank 0 reports: only the job's life changes."""
    kept = {name: getattr(before, name) for name in _OF_TRAINING}
    conditions = [condition for condition in after.conditions if condition.type not in _CONDITIONS]
    conditions += filter(None, map(before.condition, _CONDITIONS))
    return after.model_copy(update={**kept, "conditions": tuple(conditions)})


def _life(status: Status) -> object:
    """Return the part of a status whose changes are written at once."""
    conditions = {
        (condition.type, condition.status, condition.reason)
        for condition in status.conditions
        if condition.type not in _CONDITIONS
    }
    return status.observed_generation, status.state, status.restarts, conditions


def _news(status: Status) -> object:
    """Return the part of a status whose changes are written as soon as rank 0's budget for news allows."""
    plan = (status.plan.version, status.plan.name) if status.plan else None
    return plan, [(each.status, each.reason) if each else None for each in map(status.condition, _CONDITIONS)]
