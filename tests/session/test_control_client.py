"""Rank 0's control thread: what goes wrong there is heard of, and what is decided there is written down."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from trimtab.control import client as control_client
from trimtab.control.adaptive_controller import AdaptiveController
from trimtab.control.client import ControlClient
from trimtab.control.decision import Measured
from trimtab.control.types import ControllerSettings, KeepGoing, ModelFacts, StepReport, SwitchPlan
from trimtab.plan.plan import Plan, dense_plan
from trimtab.session.announcements import ControlMessages
from trimtab_api.netmon.view import NetworkView


class FakeWatch:
    """A monitor that has measured."""

    def __init__(self, address: str, on_change: Any, certificates: object = None) -> None:
        self.on_change = on_change
        self.view = NetworkView(revision=1, latency=1e-3, bandwidth=1e8, stale=False)

    def wait_until_measured(self, timeout: float) -> NetworkView:
        return self.view

    def close(self) -> None:
        pass


class FakeController(AdaptiveController):
    """Does what a test asks of it."""

    def __init__(self) -> None:
        super().__init__(ControllerSettings(), ModelFacts(10, (10,), 2))
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked: list[str] = []
        self.warning: str | None = None

    def preload(self) -> None:
        self.asked.append("preload")

    def observe_network(self, view: NetworkView, now: float) -> None:
        self.asked.append("observe_network")

    def observe_step(self, report: StepReport, now: float) -> None:
        if not report.finite:
            raise ZeroDivisionError("a mistake in the controller")
        self.log.measured(Measured(1, report.step, now, None, 0.2, 10))

    def take_warning(self) -> str | None:
        return self.warning

    def next_action(self, now: float, steps_left_in_epoch: int) -> KeepGoing:
        assert self.may_answer.wait(60)
        return KeepGoing()


@dataclass
class ClientUnderTest:
    client: ControlClient
    controller: FakeController
    watch: FakeWatch
    lines: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@pytest.fixture
def make_client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a `ControlClient` around a fake controller."""
    watches: list[FakeWatch] = []

    def watch(*arguments: Any) -> FakeWatch:
        watches.append(FakeWatch(*arguments))
        return watches[-1]

    monkeypatch.setattr(control_client.netmon_client, "watch", watch)
    monkeypatch.setattr(control_client, "FIRST_DECISION_SECONDS", 0.01)
    made: list[ClientUnderTest] = []

    def make(is_slow: bool = False) -> ClientUnderTest:
        controller, lines, warnings = FakeController(), [], []  # type: ignore[var-annotated]
        if is_slow:
            controller.may_answer.clear()
        client = ControlClient(controller, "nowhere:1", lines.append, lambda: 0.0, warn=warnings.append)
        client.start()
        made.append(ClientUnderTest(client, controller, watches[-1], lines, warnings))
        return made[-1]

    yield make
    for each in made:
        each.controller.may_answer.set()
        each.client.close()


def report(step: int, finite: bool = True) -> StepReport:
    return StepReport(step, dense_plan(), 0.2, 0.1, 0.0, 0.1, 0, 0, 1.0, 0.0, finite)


def wait_for_answer(made: ClientUnderTest) -> None:
    done = threading.Event()
    made.client._control.submit(done.set)
    assert done.wait(60)


def test_a_first_decision_that_takes_long_is_not_waited_for_and_comes_later(make_client: Any) -> None:
    made = make_client(is_slow=True)
    assert made.client.poll() is None
    made.controller.may_answer.set()
    wait_for_answer(made)
    assert made.client.poll() is None
    assert made.client._asked is None, "the answer was taken"


def test_what_decisions_import_is_imported_before_the_first_figures_come(make_client: Any) -> None:
    """A job of a few short steps would else have ended before a decision that waits for it."""
    made = make_client()
    made.watch.on_change(NetworkView(revision=1, latency=1e-3, bandwidth=1e8, stale=False))
    wait_for_answer(made)
    assert made.controller.asked == ["preload", "observe_network"]


def test_what_goes_wrong_while_a_step_is_told_beside_a_decision_ends_training(make_client: Any) -> None:
    made = make_client(is_slow=True)
    made.client.step(report(0, finite=False), 10)
    made.controller.may_answer.set()
    wait_for_answer(made)
    with pytest.raises(ZeroDivisionError, match="a mistake in the controller"):
        made.client.poll()


def test_what_a_step_beside_a_decision_measured_is_written_down_without_waiting_for_the_next(make_client: Any) -> None:
    made = make_client(is_slow=True)
    made.client.step(report(7), 10)
    made.controller.may_answer.set()
    wait_for_answer(made)
    assert [(line["record"], line["step"]) for line in made.lines] == [("measured", 7)]


def test_a_warning_of_the_controller_reaches_the_user(make_client: Any) -> None:
    made = make_client()
    wait_for_answer(made)
    assert made.client.poll() is None
    made.controller.warning = "the plan went wrong"
    made.client.step(report(0), 10)
    wait_for_answer(made)
    assert made.warnings == ["the plan went wrong"]


def test_within_a_round_the_controller_is_asked_once_for_each_time_that_the_monitor_has_spoken(
    make_client: Any,
) -> None:
    """A dense exchange over a network that has narrowed meanwhile is the costliest way to learn of it."""
    made, asked = make_client(), []
    wait_for_answer(made)
    assert made.client.poll() is None
    made.controller.next_action = lambda now, left: asked.append(left) or KeepGoing()
    made.client.in_round(9)
    made.watch.on_change(NetworkView(revision=2, latency=1e-3, bandwidth=1e6, stale=False))
    made.client.in_round(8)
    wait_for_answer(made)
    assert made.client.poll() is None
    made.client.in_round(7)
    wait_for_answer(made)
    assert asked == [8]


def test_where_loops_end_in_mid_round_the_controller_is_asked_all_the_same(make_client: Any) -> None:
    made, asked = make_client(), []
    wait_for_answer(made)
    assert made.client.poll() is None
    made.controller.next_action = lambda now, left: asked.append(left) or KeepGoing()
    made.client.loop_ended(None)
    wait_for_answer(made)
    assert made.client.poll() is None
    made.client.loop_ended(report(7))
    wait_for_answer(made)
    assert asked == [0, 0]
    assert [(line["record"], line["step"]) for line in made.lines] == [("measured", 7)]


def test_a_controller_goes_on_with_the_plan_that_ranks_follow(make_client: Any) -> None:
    made, plan = make_client(), Plan.parse("0.1/all-gather")
    decided = {**made.client.state_dict(), "plan": Plan.parse("0.01/all-gather").with_version(1).to_json()}
    ControlMessages(None, made.client).load_state_dict(decided, plan)
    assert made.controller.plan == plan, "or no step would be one of its plan's"


def test_training_gets_the_interpreter_soon_while_a_decision_is_made_and_the_users_setting_comes_back(
    make_client: Any,
) -> None:
    made, during = make_client(), []
    wait_for_answer(made)
    before = sys.getswitchinterval()
    made.controller.next_action = lambda now, left: during.append(sys.getswitchinterval()) or KeepGoing()
    assert made.client.poll() is None
    made.client.step(report(7), 10)
    wait_for_answer(made)
    assert during == [pytest.approx(control_client.GIL_SWITCH_INTERVAL_SECONDS)]
    assert sys.getswitchinterval() == before > control_client.GIL_SWITCH_INTERVAL_SECONDS


def test_a_network_that_is_not_measured_is_told_and_written_down_and_so_is_its_end(
    make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = FakeWatch("nowhere:1", None).view
    absent = NetworkView(0, 0.0, 0.0, stale=True, problem="connection refused")
    monkeypatch.setattr(FakeWatch, "wait_until_measured", lambda watch, timeout: absent)
    made = make_client()
    assert made.warnings == ["the network is not measured, so the plan does not adapt to it: connection refused"]
    made.watch.view = measured
    made.client.step(report(0), 10)
    wait_for_answer(made)
    assert made.warnings[1:] == ["the network is measured now"]
    notes = [line["problem"] for line in made.lines if line["record"] == "network"]
    assert notes == ["connection refused", ""]


def test_answers_are_seen_and_taken_once_by_two_threads(make_client: Any) -> None:
    """The vote asks on the communication thread, under schedule=overlap while the training thread takes a message."""
    made = make_client()
    wait_for_answer(made)
    assert made.client.poll() is None
    plans = [Plan.parse("0.1/all-gather").with_version(number) for number in range(1, 20)]
    answers, over = iter(plans), threading.Event()
    made.controller.next_action = lambda now, left: SwitchPlan(next(answers), decision=None)

    def watch() -> int:
        seen = 0
        while not over.wait(1e-4):
            seen += made.client.has_message
        return seen

    taken = []
    with ThreadPoolExecutor(1) as communication:
        watching = communication.submit(watch)
        try:
            while len(taken) < len(plans):
                if (message := made.client.poll()) is None:
                    made.client.loop_ended(None)
                    wait_for_answer(made)
                    continue
                taken.append(message.plan.version)
                made.client.sent()
                assert not made.client.has_message
        finally:
            over.set()
        watching.result(60)
    assert taken == [plan.version for plan in plans]


def test_what_is_announced_before_an_answer_came_does_not_take_it_along(make_client: Any) -> None:
    made = make_client()
    wait_for_answer(made)
    made.controller.next_action = lambda now, left: SwitchPlan(
        Plan.parse("0.1/all-gather").with_version(1), decision=None
    )
    assert made.client.poll() is None
    made.client.loop_ended(None)
    wait_for_answer(made)
    made.client.sent()  # of what was polled before: nothing
    assert made.client.has_message
    assert made.client.poll().plan.version == 1
