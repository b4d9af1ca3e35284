"""How long ranks may take to end once they are told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimtab_api.trainingjob import TrainingJob

#: Kubernetes' default of a pod's terminationGracePeriodSeconds.
_USUAL_SECONDS = 30.0


def termination_grace(job: TrainingJob) -> float:
    """Seconds from SIGTERM to SIGKILL of a run that is told to end: terminationGracePeriodSeconds, or 30."""
    period = job.spec.template["spec"].get("terminationGracePeriodSeconds")
    return _USUAL_SECONDS if period is None else float(period)
