"""Metrics of jobs: the number in each state, and each job's progress. Made when Prometheus asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, get_args

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from trimtab_api.trainingjob.status import State

from trimtab_operator.kube.resources import Object
from trimtab_operator.kube.text import parse_time
from trimtab_operator.rank0.sanitize import Rank0Status

#: Labels, as on the network's and the trainer's metrics of the same job.
LABELS = ("namespace", "trimtab_dev_job_name")
_FIGURES = {
    "step": "Optimizer steps done",
    "loss": "Training loss of the last step, as rank 0's script passed it",
    "gain_ratio": "Share of the error-fed gradient that got through, as rank 0 said last",
    "since_progress_seconds": "Time since training last got a step further; absent while rank 0 is not heard",
    "start_seconds": "From when its pods were first asked for to when every worker was ready",
}


class Heard(Protocol):
    """The last message of each job's rank 0."""

    def latest(self, uid: str) -> Rank0Status | None:
        """Return the last message of a job's rank 0."""
        ...

    def since_progress(self, uid: str) -> float | None:
        """Return the seconds since the message that told the last new step."""
        ...

    @property
    def num_streams(self) -> int:
        """Number of jobs whose rank 0 sends, or is being called."""
        ...


class JobMetrics(Collector):
    """Metrics from the operator's cache of jobs.

    If there are more than ``most_jobs``, none has series of its own.
    """

    def __init__(self, jobs: Callable[[], Iterable[Object]], heard: Heard, most_jobs: int) -> None:
        self._jobs = jobs
        self._heard = heard
        self._most_jobs = most_jobs

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all jobs as they are now."""
        jobs = list(self._jobs())
        states = Counter(dict.fromkeys(get_args(State), 0))
        states.update(_state(job) for job in jobs)
        by_state = GaugeMetricFamily("trimtab_operator_jobs", "TrainingJobs that there are, by state", labels=["state"])
        for state, count in states.items():
            by_state.add_metric([state], count)
        yield by_state
        text = "Jobs whose rank 0 this process hears, or calls"
        yield GaugeMetricFamily("trimtab_operator_streams", text, value=self._heard.num_streams)
        yield from self._of_each(jobs if len(jobs) <= self._most_jobs else [])

    def _of_each(self, jobs: list[Object]) -> Iterator[Metric]:
        text = "1: the job's state, and its plan (empty before there is one)"
        info = GaugeMetricFamily("trimtab_operator_job_info", text, labels=[*LABELS, "state", "plan"])
        families = {
            name: GaugeMetricFamily(f"trimtab_operator_job_{name}", text, labels=LABELS)
            for name, text in _FIGURES.items()
        }
        for job in jobs:
            metadata = job["metadata"]
            labels = [metadata["namespace"], metadata["name"]]
            plan = job.get("status", {}).get("plan") or {}
            info.add_metric([*labels, _state(job), plan.get("name", "")], 1)
            for name, value in self._figures(job).items():
                if value is not None:
                    families[name].add_metric(labels, value)
        yield from (info, *families.values())

    def _figures(self, job: Object) -> dict[str, float | None]:
        """Return one job's figures; its status holds what rank 0 told an operator before this one led."""
        uid, status = job["metadata"]["uid"], job.get("status", {})
        said = self._heard.latest(uid) or Rank0Status()
        is_over = _state(job) in ("Succeeded", "Failed")
        return {
            "step": status.get("step") if said.step is None else said.step,
            "loss": status.get("loss") if said.loss is None else said.loss,
            "gain_ratio": said.gain,
            "since_progress_seconds": None if is_over else self._heard.since_progress(uid),
            "start_seconds": _start_seconds(status),
        }


def _state(job: Object) -> str:
    return str(job.get("status", {}).get("state", "Pending"))


def _start_seconds(status: dict[str, Any]) -> float | None:
    """Return the seconds from the request for pods to their readiness; None before that, or if a clock was wrong."""
    started = next((condition for condition in status.get("conditions", ()) if condition["type"] == "Started"), None)
    asked, ready = parse_time(status.get("startTime")), parse_time(started and started["lastTransitionTime"])
    if started is None or started["status"] != "True" or asked is None or ready is None or ready < asked:
        return None
    return (ready - asked).total_seconds()
