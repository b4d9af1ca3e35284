"""What a job with a Static plan says of its steps and of dense's, by which its alerts judge the plan."""

import pytest
from simulator import GIGABIT
from trimtab.control.factory import make_controller
from trimtab.control.types import ControllerSettings, KeepGoing, ModelFacts, StepReport
from trimtab.plan.plan import Plan
from trimtab.plan.profile import BucketTimes, ModuleTimes, Profile
from trimtab_api.netmon.view import NetworkView

FACTS = ModelFacts(4_000_000, (1_000_000, 1_000_000, 2_000_000), 4)
PLAN = Plan(0.1, "all-gather", "mstopk")
MODULES = (ModuleTimes("all", 0, 4_000_000, 0.01, 0.03),)
PROFILED = Profile(5, 3, PLAN, 0.02, (0.01,) * 3, MODULES, (BucketTimes(0.01, 0.1),), 1.0, 2.0, 3.0)


class Watched:
    """Training at one step a second, in which the controller is asked after each."""

    def __init__(self) -> None:
        self._controller = make_controller(ControllerSettings("static", PLAN), FACTS)
        self._step = 0

    def sees(self, revision: int, latency: float, bandwidth: float) -> None:
        self._controller.observe_network(NetworkView(revision, latency, bandwidth), self._step)

    def profiles(self) -> None:
        self._controller.observe_profile(PROFILED, self._step)

    def takes(self, count: int, collective_seconds: float, computing: float = 0.03) -> None:
        for _ in range(count):
            step_seconds = computing + 0.02 + collective_seconds
            report = StepReport(
                *(self._step, self._controller.plan, step_seconds, computing, 0.02, collective_seconds),
                *(4_800_000, 3, 0.5, 1.0),
                finite=True,
            )
            self._controller.observe_step(report, self._step)
            assert self._controller.next_action(self._step, 100) == KeepGoing(), "the plan stays"
            self._step += 1

    def said(self) -> list[dict]:
        return [line for line in self._controller.log.drain() if line["record"] == "decision"]


@pytest.fixture
def watched():
    """As it is when it has said for the first time what steps take."""
    watched = Watched()
    watched.takes(5, 0.2)
    assert watched.said() == []
    watched.profiles()
    watched.sees(1, 1e-3, GIGABIT)
    watched.takes(1, 0.2)
    return watched


def test_it_says_what_it_and_dense_should_take_once_it_is_profiled_and_the_network_is_known(watched):
    (first,) = watched.said()
    assert (first["trigger"], first["changed"]) == ("profile", False)
    assert first["inputs"]["dense_step_seconds"] > first["inputs"]["compute_seconds"]
    watched.takes(49, 0.2)
    assert watched.said() == []


def test_a_start_that_was_slow_is_not_what_it_says_for_good(watched):
    (first,) = watched.said()
    watched.takes(150, 0.02)
    (second,) = watched.said()
    assert (second["trigger"], second["changed"]) == ("warm-up", False)
    assert second["predicted_seconds"] < first["predicted_seconds"]


def test_it_says_so_again_of_another_network_and_each_once(watched):
    (first,) = watched.said()
    for revision in (2, 3):
        watched.sees(revision, 20e-3, GIGABIT / 50)
        watched.takes(5, 2.0)
    (moved,) = watched.said()
    assert (moved["trigger"], moved["changed"]) == ("network", False)
    assert moved["inputs"]["bandwidth"] == pytest.approx(GIGABIT / 50)
    assert moved["inputs"]["dense_step_seconds"] > 10 * first["inputs"]["dense_step_seconds"]
    watched.takes(100, 2.0)
    assert [line["trigger"] for line in watched.said()] == ["warm-up"], "a change does not take the second look's place"


def test_a_host_that_has_become_slow_is_not_promised_when_the_network_changes(watched):
    watched.takes(150, 0.02)
    promised = watched.said()[-1]
    watched.takes(50, 0.02, computing=1.0)
    watched.sees(2, 2e-3, GIGABIT)
    watched.sees(3, 2e-3, GIGABIT)
    watched.takes(5, 0.02, computing=1.0)
    (moved,) = watched.said()
    assert moved["trigger"] == "network"
    assert moved["inputs"]["compute_seconds"] == pytest.approx(promised["inputs"]["compute_seconds"])
    assert moved["predicted_seconds"] < 2 * promised["predicted_seconds"]
    assert moved["inputs"]["dense_step_seconds"] < 2 * promised["inputs"]["dense_step_seconds"]
