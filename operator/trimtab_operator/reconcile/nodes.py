"""Reachability of nodes: a pod on a lost node may never end, and its failure is not the job's."""

from __future__ import annotations

import logging
import threading
import time

from trimtab_operator.kube.api import Api, RefusedError
from trimtab_operator.kube.resources import NODES, Object

#: Seconds for which an answer counts: many reconciliations in a row ask about the same node.
_FRESH_SECONDS = 5.0
#: Most answers that are kept.
_MOST_ANSWERS = 1000

_log = logging.getLogger(__name__)


class Nodes:
    """Answers about nodes. Many threads may call it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, bool]] = {}
        self._was_forbidden = False

    def is_unreachable(self, name: str) -> bool:
        """Return whether the node is gone, or its condition Ready is not True.

        If the operator may not read nodes (it looks after one namespace), the answer is False: pods alone then tell.

        Raises:
            RefusedError: If the API server refuses for now; a later attempt may succeed.
            Unreachable: If the API server cannot be reached; a later attempt may succeed.
        """
        with self._lock:
            asked_at, answer = self._answers.get(name, (float("-inf"), False))
        if time.monotonic() - asked_at < _FRESH_SECONDS:
            return answer
        answer = self._ask(name)
        with self._lock:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[name] = (time.monotonic(), answer)
        return answer

    def _ask(self, name: str) -> bool:
        try:
            node = self._api.get(NODES, None, name)
        except RefusedError as refusal:
            if refusal.status not in (401, 403):
                raise
            if not self._was_forbidden:
                _log.warning("nodes cannot be read; lost nodes are detected by their pods alone: %s", refusal)
            self._was_forbidden = True
            return False
        return node is None or not _is_ready(node)


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
