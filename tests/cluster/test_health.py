"""What an operator says of itself over HTTP, while the API server answers and while it does not."""

from __future__ import annotations

import signal
import sys

import pytest
from programs import wait_until
from workbench import Operators

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

#: The operator, with limits that a test can wait for: a quiet watch is resumed every second, and stuck after three.
IMPATIENT = """
from trimtab_operator import main, operator
from trimtab_operator.kube import informers

informers.WATCH_SECONDS, operator.STUCK_SECONDS = 1, 3.0
main.main()
"""


@pytest.fixture
def operators(control_plane, tmp_path):
    running = Operators(control_plane, tmp_path)
    yield running
    running.stop()


@pytest.fixture
def stalled(control_plane):
    """Has the API server hold every connection and say nothing, until called with False."""
    program = control_plane.programs["kube-apiserver"].process

    def stall(held):
        program.send_signal(signal.SIGSTOP if held else signal.SIGCONT)

    yield stall
    stall(False)


def test_an_operator_whose_watches_are_stuck_says_so_and_is_well_again_when_they_get_on(namespace, operators, stalled):
    flags = ("--namespace", namespace.namespace, "--watch-namespace", namespace.namespace)
    program = operators.start(*flags, program=(sys.executable, "-c", IMPATIENT))
    wait_until(lambda: operators.ask(program, "/healthz") == (200, "ok\n"), "it is well")
    stalled(True)
    said = []
    wait_until(
        lambda: said.append(operators.ask(program, "/healthz")) or said[-1][0] == 503, "it says that it is stuck"
    )
    assert said[-1][1].endswith("has not got on for 3 s\n")
    stalled(False)
    wait_until(lambda: operators.ask(program, "/healthz") == (200, "ok\n"), "it is well again")


def test_an_operator_that_has_seen_nothing_yet_is_well_but_not_ready(namespace, operators, stalled):
    stalled(True)
    program = operators.start("--namespace", namespace.namespace, wait=False)
    wait_until(lambda: operators.ask(program, "/healthz") == (200, "ok\n"), "it is well")
    assert operators.ask(program, "/readyz") == (503, "has not yet seen trainingjobs, jobs, pods\n")
    stalled(False)
    wait_until(lambda: operators.ask(program, "/readyz") == (200, "ok\n"), "it is ready")


def test_an_operator_that_does_not_lead_exports_an_empty_queue_whatever_jobs_there_are(bench, operators):
    bench.create("digits")
    bench.wait_for_pods("digits")  # so another leads
    standby = operators.start()
    seen = []

    def gauges_are_read_anew():
        """Twice since all jobs were listed, by a gauge that is another at each reading."""
        samples = dict(
            line.rsplit(" ", 1) for line in operators.http(standby, "/metrics").splitlines() if line[0] != "#"
        )
        seen.append(samples)
        silence = 'trimtab_operator_watch_silence_seconds{resource="trainingjobs"}'
        return len({each[silence] for each in seen if silence in each}) >= 2

    wait_until(gauges_are_read_anew, "the gauges are read")
    names = ("leader", "queue_length", "queue_wait_seconds")
    assert [float(seen[-1][f"trimtab_operator_{name}"]) for name in names] == [0.0, 0.0, 0.0]
