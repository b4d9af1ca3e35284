"""The present status of a job, which another version of the operator may have written."""

from __future__ import annotations

import logging

from pydantic import ValidationError
from trimtab_api.trainingjob.status import Status

from trimtab_operator.kube.resources import Object

_log = logging.getLogger(__name__)


def read_status(resource: Object) -> Status:
    """Return the status of a TrainingJob, without the fields and the single conditions that this version cannot read.

    The readable rest is kept: without its restarts, a running attempt would be taken for another's. A job in an unknown
    state that has a completion time is over: it reads as Failed, and stays as it is.
    """
    written = resource.get("status") or {}
    try:
        return Status.model_validate(written)
    except ValidationError as error:
        metadata, mistakes = resource["metadata"], error.errors(include_url=False)
    unread = {str(mistake["loc"][0]) for mistake in mistakes if not _is_of_one_condition(mistake["loc"])}
    conditions = {mistake["loc"][1] for mistake in mistakes if _is_of_one_condition(mistake["loc"])}
    where = ", ".join(sorted({".".join(map(str, mistake["loc"])) for mistake in mistakes}))
    _log.warning(
        "%s/%s: a part of its status was ignored, because this version cannot read it: %s",
        metadata["namespace"],
        metadata["name"],
        where,
    )
    kept = {key: value for key, value in written.items() if key not in unread}
    if conditions:
        kept["conditions"] = [each for at, each in enumerate(written["conditions"]) if at not in conditions]
    if "state" in unread and "completionTime" in kept:
        kept["state"] = "Failed"
    return Status.model_validate(kept)


def _is_of_one_condition(place: tuple[int | str, ...]) -> bool:
    return len(place) > 1 and place[0] == "conditions"
