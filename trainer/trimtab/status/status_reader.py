"""Makes a run's status from its files, which the trainers write anyway, and says which statuses are news."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable

from trimtab_api.errors import UserError
from trimtab_api.netmon.view import NOTHING_KNOWN, NetworkView
from trimtab_api.trainer.v1 import status_pb2
from trimtab_api.trainingjob import TrainingJob

from trimtab.plan.plan import Plan
from trimtab.run_files.json_files import read_file
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.line_file import Tail
from trimtab.run_files.schema import DecisionLine, NetworkNote, RunResult, decision_kind
from trimtab.run_files.steps import (
    ALONE,
    DroppedSteps,
    LeftOutSteps,
    Step,
    WrittenCheckpoint,
    metric_kind,
    straggler_of,
)
from trimtab.status.checkpoints import Checkpoints

#: Step time and gain are taken over this many of the last steps under the plan in force.
NUM_RECENT = 20
#: Number of decisions that are kept. A decision is logged before the first step under its plan, so that the plan in
#: force may not be the last one decided.
NUM_DECISIONS = 8


class StatusReader:
    """The status of one run, kept by reading what its files have gained."""

    def __init__(
        self, directory: RunDirectory, job: TrainingJob, network: Callable[[], NetworkView] = lambda: NOTHING_KNOWN
    ) -> None:
        """Read nothing yet; ``network`` returns the network as the monitor sees it now."""
        self._directory = directory
        self._job = job
        self._network = network
        self._metrics = Tail(directory.metrics)
        self._decisions = Tail(directory.decisions)
        self._network_problem = ""
        self._dropped = DroppedSteps()
        self._checkpoints = Checkpoints(directory)
        self._decided: deque[DecisionLine] = deque(maxlen=NUM_DECISIONS)
        self._step: Step | None = None
        self._adopted_at = 0
        self._recent: deque[Step] = deque(maxlen=NUM_RECENT)

    def read(self) -> status_pb2.Status:
        """Return the status now."""
        end = self._end()  # read before the steps: no step follows it, so the final status holds the last step
        for told in self._decisions.new_records(decision_kind):
            if isinstance(told, DecisionLine):
                self._keep(told)
            elif isinstance(told, NetworkNote):
                self._network_problem = told.problem
        for line in self._metrics.new_records(metric_kind):
            if isinstance(line, WrittenCheckpoint):
                self._checkpoints.add(line)
            elif isinstance(line, LeftOutSteps):
                self._dropped.add_left_out(line)
            elif isinstance(line, Step) and not line.trial:
                self._take(line)
        state, message = end or self._begun()
        view = self._network()
        status = status_pb2.Status(
            job=self._job.metadata.name,
            state=state,
            message=message,
            num_ranks=self._job.spec.num_ranks,
            network=status_pb2.Network(
                revision=view.revision,
                latency_seconds=view.latency,
                bandwidth_bytes_per_second=view.bandwidth,
                stale=view.stale,
                bandwidth_age_seconds=view.bandwidth_age if view.bandwidth_age < math.inf else 0.0,
                bandwidth_lower_bound=view.bandwidth_lower_bound,
            ),
            taken_at_unix_seconds=time.time(),
        )
        if self._step is not None:
            self._describe(status, self._step)
        if (last := self._checkpoints.last) is not None:
            status.checkpoint.CopyFrom(
                status_pb2.Checkpoint(
                    step=last.step,
                    age_seconds=max(0.0, status.taken_at_unix_seconds - self._checkpoints.last_at),
                    bytes=last.num_bytes,
                    seconds=last.seconds,
                )
            )
        status.checkpoint_problem = self._checkpoints.problem
        if status.state == status_pb2.STATE_SUCCEEDED:
            status.message = str(self._dropped)
        return status

    def _keep(self, decision: DecisionLine) -> None:
        """Keep the decision that adopted a version's plan: later ones kept the plan, for reasons of their own."""
        if not self._decided or self._decided[-1].adopted.version != decision.adopted.version:
            self._decided.append(decision)

    def _take(self, step: Step) -> None:
        self._dropped.add(step)
        if self._step is None or step.plan_version != self._step.plan_version:
            self._adopted_at = step.step
            self._recent.clear()  # times and gain under another plan say nothing about this one
        self._step = step
        self._recent.append(step)

    def _begun(self) -> tuple[status_pb2.State, str]:
        if self._step is None:
            return status_pb2.STATE_STARTING, self._directory.read_starting()
        if self._network_problem:
            return status_pb2.STATE_RUNNING, f"the network is not measured: {self._network_problem}"
        told_at = self._dropped.left_out_at
        has_left_out = told_at is not None and told_at >= self._recent[0].step
        if has_left_out or any(step.was_dropped for step in self._recent):
            return status_pb2.STATE_RUNNING, str(self._dropped)
        straggler = straggler_of(self._recent)
        return status_pb2.STATE_RUNNING, "" if straggler is None else str(straggler)

    def _end(self) -> tuple[status_pb2.State, str] | None:
        """Return how the run ended, once its launcher has written it down."""
        try:
            result = read_file(RunResult, self._directory.result)
        except (OSError, UserError):  # not there, or being written
            return None
        if result.is_success:
            return status_pb2.STATE_SUCCEEDED, ""
        return status_pb2.STATE_FAILED, result.message

    def _describe(self, status: status_pb2.Status, step: Step) -> None:
        status.step = step.step + 1
        if step.loss is not None:
            status.loss = step.loss
        status.step_seconds = statistics.median(each.step_seconds for each in self._recent)
        if step.plan == ALONE:
            return
        gains = [each.gain for each in self._recent if each.gain is not None]
        status.gain = statistics.fmean(gains) if gains else 0.0
        status.plan.CopyFrom(self._plan(step))

    def _plan(self, step: Step) -> status_pb2.Plan:
        """Return the plan in force; what a metrics line leaves out comes from the decision that adopted the plan."""
        plan = Plan.parse(step.plan)
        told = status_pb2.Plan(
            version=step.plan_version,
            name=step.plan,
            ratio=plan.ratio,
            collective=plan.collective,
            sparsifier=""
            if plan.is_dense or plan.row.has_builtin_sparsifier
            else self._job.spec.communication.sparsifier,
            reason=self._first_reason(),
            adopted_at_step=self._adopted_at,
        )
        for decision in self._decided:
            if (decision.adopted.version, decision.adopted.name) == (step.plan_version, step.plan):
                told.num_buffers = len(decision.adopted.fusion.cuts)
                told.reason = decision.reason
        return told

    def _first_reason(self) -> str:
        if self._job.spec.communication.policy == "Static":
            return "the job's communication policy is Static"
        return "nothing has been decided yet"


def is_final(status: status_pb2.Status) -> bool:
    """Return whether no other status will follow."""
    return status.state in (status_pb2.STATE_SUCCEEDED, status_pb2.STATE_FAILED)


def is_news(sent: status_pb2.Status, now: status_pb2.Status) -> bool:
    """Return whether one of these changed since ``sent``: state, plan, staleness of the network, failing checkpoints.

    Everything else, such as the reason why a plan was kept, waits for the watcher's interval.
    """
    return (
        sent.state != now.state
        or (sent.plan.version, sent.plan.name) != (now.plan.version, now.plan.name)
        or sent.network.stale != now.network.stale
        or bool(sent.checkpoint_problem) != bool(now.checkpoint_problem)
    )
