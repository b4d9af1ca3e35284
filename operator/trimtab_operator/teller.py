"""Writing events: each until it is there, for the status that it explains is written once and never derived again."""

from __future__ import annotations

import logging
from collections import deque

from trimtab_operator.cluster.api import Api, RefusedError
from trimtab_operator.cluster.resources import EVENTS, Object

#: Events of one job that are kept to be written; beyond it the oldest are dropped.
_MOST = 100

_log = logging.getLogger(__name__)


class Teller:
    """Events that jobs are owed, by ``namespace/name``. Never to be called from two threads with the same key.

    They are kept in memory: an operator that dies between a status and its events leaves these untold.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._owed: dict[str, deque[Object]] = {}

    def owe(self, key: str, event: Object) -> None:
        """Have an event written by the next `tell`."""
        self._owed.setdefault(key, deque(maxlen=_MOST)).append(event)

    def tell(self, key: str) -> None:
        """Write what is owed, in order.

        Raises `RefusedError` or one of `Unreachable` where that may be over in a while; the rest is then still owed.
        An event that exists was told before, its answer lost. One that is refused for good is dropped.
        """
        owed = self._owed.get(key)
        while owed:
            try:
                self._api.create(EVENTS, owed[0])
            except RefusedError as refusal:
                if refusal.status == 429 or refusal.status >= 500:
                    raise
                if refusal.reason != "AlreadyExists":
                    _log.warning("%s: an event could not be written: %s", key, refusal)
            owed.popleft()
        self.forget(key)

    def forget(self, key: str) -> None:
        """The job is owed nothing, or is gone."""
        self._owed.pop(key, None)
