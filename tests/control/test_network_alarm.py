"""When a network that is not measured is told: after some patience, once, and its end once."""

from trimtab.control.monitors.network_alarm import PATIENCE_SECONDS, NetworkAlarm, problem_of
from trimtab_api.netmon.view import NOTHING_KNOWN, NetworkView


def test_a_problem_is_told_once_after_the_patience_and_its_end_once():
    alarm = NetworkAlarm()
    assert alarm.look("", 0.0) is None
    assert alarm.look("refused", 1.0) is None
    assert alarm.look("refused", PATIENCE_SECONDS) is None
    assert alarm.look("reset", 1.0 + PATIENCE_SECONDS) == "reset"
    assert alarm.look("refused", 2.0 + PATIENCE_SECONDS) is None
    assert alarm.look("", 3.0 + PATIENCE_SECONDS) == ""
    assert alarm.look("", 4.0 + PATIENCE_SECONDS) is None


def test_a_problem_that_passes_within_the_patience_is_not_told():
    alarm = NetworkAlarm()
    assert alarm.look("refused", 0.0) is None
    assert alarm.look("", 1.0) is None
    assert alarm.look("refused", PATIENCE_SECONDS) is None


def test_what_counts_as_a_problem():
    assert problem_of(NOTHING_KNOWN) == "the monitors have not measured every link yet"
    measured = NetworkView(revision=3, latency=0.001, bandwidth=1e8, stale=True)
    assert problem_of(measured) == ""
    assert problem_of(NetworkView(3, 0.001, 1e8, stale=True, problem="all tests fail")) == "all tests fail"
