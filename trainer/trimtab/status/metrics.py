"""A run as Prometheus metrics, made of its files when Prometheus asks: training loses no time to it.

Base units, and labels whose values are few: phases, triggers, metrics that a script reports. What is not known yet is
absent. All begin with ``trimtab_trainer_``; `docs/reference/metrics.md` lists them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from operator import attrgetter
from typing import get_args

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from trimtab_api.catalogue import AXES, parse_plan_text
from trimtab_api.errors import UserError
from trimtab_api.http_server import HttpServer

from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.line_file import Tail
from trimtab.run_files.schema import DecisionLine, MeasuredLine, Trigger, decision_kind
from trimtab.run_files.steps import ALONE, Evaluation, RoundEnd, Step, WrittenCheckpoint, metric_kind
from trimtab.status.checkpoints import Checkpoints

#: Metrics that a script reports by names of its own; more are left out, for names may be made up in a loop.
MOST_EVALUATIONS = 20
#: The first five make up a step; the others run beside it.
PHASES = ("forward", "backward", "exposed", "optimizer", "other", "compress", "collective")

_seconds_of = attrgetter(*(f"{phase}_seconds" for phase in PHASES))


class RunMetrics(Collector):
    """Reads on in the files of one run at each scrape."""

    def __init__(self, directory: RunDirectory) -> None:
        self._lines = Tail(directory.metrics), Tail(directory.decisions)
        self._lock = threading.Lock()
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._trial_seconds = 0.0
        self._counts: Counter[str] = Counter(
            dict.fromkeys(("steps", "dropped", "trials", "bytes", "messages", "guards"), 0)
        )
        never = dict.fromkeys(get_args(Trigger), 0)  # a counter that appears with its first change hides that change
        self._decisions, self._changes = Counter[str](never), Counter[str](never)
        self._evaluations: dict[str, float] = {}
        self._checkpoints = Checkpoints(directory)
        self._step: Step | None = None
        self._gain: float | None = None
        self._achieved: float | None = None
        self._residual_norm: float | None = None
        self._predicted: float | None = None
        self._dense: float | None = None
        self._dense_exposed: float | None = None
        self._measured: float | None = None
        self._solving_seconds = 0.0

    def collect(self) -> Iterator[Metric]:
        """Yield everything, as the files have it now."""
        with self._lock:
            self._read()
            yield from self._families()

    def _read(self) -> None:
        """Take in what the files have gained."""
        metrics, decisions = self._lines
        for told in decisions.new_records(decision_kind):
            if isinstance(told, DecisionLine):
                self._take_decision(told)
            elif isinstance(told, MeasuredLine):
                self._measured = told.seconds
        for line in metrics.new_records(metric_kind):
            if isinstance(line, Step):
                self._take_step(line)
            elif isinstance(line, RoundEnd):
                self._take_round_end(line)
            elif isinstance(line, Evaluation):
                self._take_evaluation(line)
            elif isinstance(line, WrittenCheckpoint):
                self._checkpoints.add(line)

    def _take_evaluation(self, evaluation: Evaluation) -> None:
        for name, value in evaluation.values.items():
            if name in self._evaluations or len(self._evaluations) < MOST_EVALUATIONS:
                self._evaluations[name] = value

    def _take_step(self, step: Step) -> None:
        self._counts["bytes"] += step.num_bytes
        self._counts["messages"] += step.num_messages
        if step.trial:
            self._counts["trials"] += 1
            self._trial_seconds += step.step_seconds
            return
        self._step = step
        self._gain = self._gain if step.gain is None else step.gain
        if step.achieved_ratio is not None:  # a step that sends nothing leaves the residual as it is
            self._achieved, self._residual_norm = step.achieved_ratio, step.residual_norm
        self._counts["steps"] += 1
        self._counts["dropped"] += not step.finite
        for phase, seconds in zip(PHASES, _seconds_of(step), strict=True):
            self._seconds[phase] += seconds

    def _take_round_end(self, ended: RoundEnd) -> None:
        self._counts["bytes"] += ended.num_bytes
        self._counts["messages"] += ended.num_messages
        self._seconds["exposed"] += ended.wait_seconds
        self._seconds["compress"] += ended.compress_seconds
        self._seconds["collective"] += ended.collective_seconds

    def _take_decision(self, decision: DecisionLine) -> None:
        self._decisions[decision.trigger] += 1
        self._changes[decision.trigger] += decision.changed
        # The decision at the end of a guard's hold has the same trigger, and leaves dense again or keeps it.
        is_guard = decision.trigger == "guard" and decision.changed
        self._counts["guards"] += is_guard and parse_plan_text(decision.adopted.name).ratio == 1.0
        self._predicted = decision.predicted_seconds
        known = decision.known_inputs
        self._dense, computing = known.get("dense_step_seconds"), known.get("compute_seconds")
        if self._dense is not None and computing is not None:
            self._dense_exposed = max(0.0, self._dense - computing)
        self._solving_seconds += decision.solving_seconds

    def _families(self) -> Iterator[Metric]:
        counts, step = self._counts, self._step
        yield _info("build", "Version of the trainer", {"version": version("trimtab")})
        yield _counter("steps", "Training steps taken; those of trials are not counted", counts["steps"])
        text = "Training steps that were dropped on all ranks: a value was not finite"
        yield _counter("dropped_steps", text, counts["dropped"])
        yield _counter("trial_steps", "Steps taken in trials, which were undone", counts["trials"])
        yield _counter("sent_bytes", "Bytes that rank 0 sent", counts["bytes"])
        yield _counter("messages", "Messages on the longest chain of each exchange", counts["messages"])
        text = (
            "Time of training steps: forward (with the batch and the loss), backward, exposed (waiting for the"
            " exchange), optimizer and other make up the step; compress and collective run beside it. By the host's"
            " clock: on a GPU, what backward has queued is computed while the thread waits. Divided by the rate of"
            " steps_total: the mean of a step"
        )
        yield _by("step_seconds", text, "phase", self._seconds)
        yield _counter("trial_seconds", "Time that trials took", self._trial_seconds)
        yield _counter("solving_seconds", "Processor time that decisions took", self._solving_seconds)
        yield _by("decisions", "Decisions of the controller, by what they followed", "trigger", self._decisions)
        yield _by("plan_changes", "Decisions that changed the plan, by what they followed", "trigger", self._changes)
        text = "Times that a guard rail took the job back to dense, whatever the models said; the decision says why"
        yield _counter("guard_activations", text, counts["guards"])
        yield _gauge("predicted_step_seconds", "Step time that the last decision expected of its plan", self._predicted)
        yield _gauge("dense_step_seconds", "Step time that the last decision expected of dense", self._dense)
        text = "Of that the wait for the exchange; how long dense computes, the steps in force tell"
        yield _gauge("dense_exposed_seconds", text, self._dense_exposed)
        yield _gauge("measured_step_seconds", "Mean of the steps after the last change of plan", self._measured)
        text = f"What the script reported last by session.report, at most {MOST_EVALUATIONS} names"
        values = GaugeMetricFamily("trimtab_trainer_evaluation", text, labels=("metric",))
        for name, value in self._evaluations.items():
            values.add_metric([name], value)
        yield values
        yield from self._of_checkpoints()
        if step is not None:
            yield from self._of_step(step)

    def _of_checkpoints(self) -> Iterator[Metric]:
        told, last = self._checkpoints, self._checkpoints.last
        yield _counter("checkpoints", "Checkpoints of the job that are whole", told.num)
        yield _counter("failed_checkpoints", "Checkpoints of the job that could not be written", told.num_failed)
        yield _counter("checkpoint_pause_seconds", "Time that training waited for copies", told.pause_seconds)
        yield _gauge("checkpoint_failing", "1: the last checkpoint could not be written", float(bool(told.problem)))
        if last is not None:
            yield _gauge("checkpoint_step", "Training steps that the last whole checkpoint holds", last.step)
            text = "When the last checkpoint was whole, in seconds since the Unix epoch"
            yield _gauge("checkpoint_time_seconds", text, told.last_at)
            yield _gauge("checkpoint_bytes", "What rank 0 wrote of the last whole checkpoint", last.num_bytes)
            yield _gauge("checkpoint_write_seconds", "Time that its write took beside training", last.seconds)

    def _of_step(self, step: Step) -> Iterator[Metric]:
        yield _gauge("step", "The last training step, counted from 0", step.step)
        yield _gauge("run_seconds", "Time from the start of training to the end of the last step", step.time)
        yield _gauge("loss", "Training loss of the last step, where the script tells it", step.loss)
        if step.plan == ALONE:
            return
        text = "Share of the error-fed gradient that got through, as last known"
        yield _gauge("gain_ratio", text, self._gain)
        plan = parse_plan_text(step.plan)
        yield _gauge("compression_ratio", "Share of the elements that the plan asks to send", plan.ratio)
        yield _gauge("achieved_ratio", "Share of the elements that rank 0 last put on the wire", self._achieved)
        text = "Norm of what error feedback holds back on rank 0, of what was sent last"
        yield _gauge("residual_norm", text, self._residual_norm)
        yield _gauge("plan_version", "Version of the plan in force", step.plan_version)
        axes = {axis: plan.axes.get(axis, AXES[axis].default) for axis in AXES}
        told = {"plan": step.plan, "collective": plan.collective, **axes}
        yield _info("plan", "The plan in force", told)
        yield _gauge("late_seconds", "By how much the last rank came after the middle one", step.late_seconds)
        yield _gauge("last_rank", "The rank that came last to the exchange", step.last_rank)


def serve(directory: RunDirectory, host: str, port: int) -> HttpServer:
    """Serve the metrics of a run at ``/metrics``, from a thread.

    Raises:
        UserError: The port is taken.
    """
    registry = CollectorRegistry()
    registry.register(RunMetrics(directory))
    try:
        server = HttpServer(make_wsgi_app(registry), host, port)
    except OSError as error:
        remedy = f"cannot listen there ({error.strerror}); stop what uses the port, or choose another"
        raise UserError(remedy, field="--port", value=f"{host}:{port}") from None
    server.start()
    return server


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"trimtab_trainer_{name}", text, value=value)


def _gauge(name: str, text: str, value: float | None) -> Metric:
    """Make a gauge, without a sample where there is no value."""
    return GaugeMetricFamily(f"trimtab_trainer_{name}", text, value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"trimtab_trainer_{name}", text, labels=(label,))
    for each, value in values.items():
        family.add_metric([each], value)
    return family


def _info(name: str, text: str, value: dict[str, str]) -> Metric:
    return InfoMetricFamily(f"trimtab_trainer_{name}", text, value=value)
