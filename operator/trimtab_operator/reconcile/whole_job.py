"""Reading of a whole TrainingJob, template included, to make children of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from trimtab_api.errors import UserError

from trimtab_operator.decisions.observed_state import ObservedState
from trimtab_operator.kube.api import Api
from trimtab_operator.kube.resources import TRAINING_JOBS, Object
from trimtab_operator.reconcile.caches import size_error

#: Bytes of JSON above which only one job at a time is held whole: decoded, checked and copied it takes a hundred times
#: as much memory.
_LARGE_BYTES = 128 * 1024


class WholeJobs:
    """A reader of whole jobs from the API server. Many threads may call it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._one_large = threading.Lock()

    @contextmanager
    def read(self, observed: ObservedState) -> Iterator[Object | None]:
        """Yield the job as the API server has it, for as long as the context is open.

        The value is None if the job is gone, or if its spec is not the one that was decided about.

        Raises:
            UserError: If the job is too large.
        """
        text = self._api.get_text(TRAINING_JOBS, observed.namespace, observed.name)
        if text is None:
            yield None
            return
        error = size_error(len(text))
        if error is not None:
            raise UserError(error, field="spec")
        with self._one_large if len(text) > _LARGE_BYTES else nullcontext():
            resource: Object = json.loads(text)
            metadata = resource["metadata"]
            is_same = (metadata["uid"], metadata["generation"]) == (observed.uid, observed.generation)
            yield resource if is_same else None
