"""The end of a job's keepers: they go when the job has ended, and not with an attempt."""

from __future__ import annotations

from trimtab_api.names import keepers_name

from trimtab_operator.children.keepers import has_keepers
from trimtab_operator.decisions.observed_state import ObservedState
from trimtab_operator.kube.api import Api
from trimtab_operator.kube.resources import STATEFUL_SETS, controller_uid


class EndedKeepers:
    """Removes the keepers of finished jobs, each once; an operator that takes over does so again."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._removed: set[str] = set()
        """Keys of the jobs whose keepers are gone."""

    def remove(self, observed: ObservedState) -> None:
        """Remove the keepers of a job that has ended."""
        if not observed.status.is_final or observed.key in self._removed or not has_keepers(observed.job):
            return
        name = keepers_name(observed.name)
        found = self._api.get(STATEFUL_SETS, observed.namespace, name)
        if found is not None and controller_uid(found) == observed.uid:
            self._api.delete(STATEFUL_SETS, observed.namespace, name, found["metadata"]["uid"])
        self._removed.add(observed.key)

    def forget(self, key: str) -> None:
        """Forget a job that is gone: another may have its name."""
        self._removed.discard(key)
