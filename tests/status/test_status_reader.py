"""The status of a job is what its run's files say, as far as they have been written."""

import json
import time

import pytest
from trimtab.cli.status_command import line
from trimtab.status.status_reader import StatusReader
from trimtab_api.netmon.view import NetworkView
from trimtab_api.trainer.v1 import status_pb2
from trimtab_api.trainingjob import load_training_job


@pytest.fixture
def reader(run):
    def make(network=None):
        job = load_training_job(run.directory.job)
        return StatusReader(run.directory, job) if network is None else StatusReader(run.directory, job, network)

    return make


def test_before_the_first_step_the_message_says_what_is_being_done(run, reader):
    assert reader().read().message == ""
    run.directory.tell_starting("waiting for ranks 2 and 3 of 4 to join")
    status = reader().read()
    assert status.message == "waiting for ranks 2 and 3 of 4 to join"
    assert (status.job, status.num_ranks, status.step) == ("digits", 4, 0)
    assert status.state == status_pb2.STATE_STARTING
    assert not status.HasField("loss")
    assert not status.HasField("plan")


def test_a_step_that_is_done_is_counted_with_its_loss(run, reader):
    run.directory.tell_starting("all ranks are ready; the first step is under way")
    run.step(0)
    run.step(1)
    status = reader().read()
    assert status.state == status_pb2.STATE_RUNNING
    assert (status.step, status.loss, status.message) == (2, 0.5, "")
    assert (status.plan.name, status.plan.ratio, status.plan.sparsifier) == ("dense-ring", 1.0, "")
    assert status.plan.reason == "nothing has been decided yet"


def test_a_rank_that_keeps_others_waiting_is_named_while_it_does(run, reader):
    for number in range(12):
        run.step(number, last_rank=2, late_seconds=0.05)
    kept = reader()
    assert kept.read().message.startswith("rank 2 comes 0.05 s after the others in 100% of the steps")
    for number in range(12, 40):
        run.step(number, last_rank=number % 3, late_seconds=0.001)
    assert kept.read().message == ""


def test_lines_that_come_later_are_read_later(run, reader):
    kept = reader()
    run.step(0)
    assert kept.read().step == 1
    with run.directory.metrics.open("a") as file:
        file.write('{"time": 0.0, "step": 1, "st')
    assert kept.read().step == 1
    with run.directory.metrics.open("a") as file:
        file.write('ep_seconds": 0.1}\n')
    assert kept.read().step == 2


def test_the_plan_in_force_comes_with_the_reason_of_the_decision_that_adopted_it(run, reader):
    run.step(0)
    run.decision("0.01/all-gather", 1, "the network became slow", num_buffers=3)
    kept = reader()
    assert kept.read().plan.name == "dense-ring"  # decided, not yet adopted
    run.step(1, "0.01/all-gather", 1)
    plan = kept.read().plan
    assert (plan.version, plan.name, plan.ratio, plan.collective) == (1, "0.01/all-gather", 0.01, "all-gather")
    assert (plan.sparsifier, plan.num_buffers, plan.adopted_at_step) == ("tracked", 3, 1)
    assert plan.reason == "the network became slow"
    run.decision("0.01/all-gather", 1, "it stays the best", num_buffers=3)
    assert kept.read().plan.reason == "the network became slow"


def test_step_time_and_gain_are_of_recent_steps_under_the_plan_in_force(run, reader):
    for number in range(10):
        run.step(number, seconds=5.0)
    for number, seconds in enumerate((0.1, 0.3, 0.2), start=10):
        run.step(number, "0.01/all-gather", 1, seconds=seconds, gain=seconds)
    status = reader().read()
    assert status.step_seconds == 0.2
    assert status.gain == pytest.approx(0.2)


def test_trials_are_not_training(run, reader):
    run.step(4)
    run.step(5, "0.1/all-gather", 0, trial=True)
    status = reader().read()
    assert (status.step, status.plan.name) == (5, "dense-ring")


def test_a_static_plan_says_whose_choice_it_was(run, reader):
    run.job(policy="Static", plan="0.01/all-gather")
    run.step(0, "0.01/all-gather")
    assert reader().read().plan.reason == "the job's communication policy is Static"


def test_a_single_process_has_no_plan(run, reader):
    run.alone(0)
    status = reader().read()
    assert (status.step, status.step_seconds) == (1, 0.1)
    assert not status.HasField("plan")
    assert not status.HasField("loss")


def test_the_network_is_what_the_monitor_says_now(reader):
    view = NetworkView(revision=7, latency=0.005, bandwidth=125e6, stale=True)
    network = reader(lambda: view).read().network
    assert (network.revision, network.latency_seconds, network.stale) == (7, 0.005, True)
    assert network.bandwidth_bytes_per_second == 125e6


def test_a_bandwidth_is_told_with_its_age_and_what_it_is_worth(reader):
    view = NetworkView(7, 0.005, 125e6, True, bandwidth_lower_bound=True, bandwidth_since=time.monotonic() - 70)
    status = reader(lambda: view).read()
    assert 70 <= status.network.bandwidth_age_seconds < 100
    assert status.network.bandwidth_lower_bound
    status.network.bandwidth_age_seconds = 70
    assert "bandwidth at least 1Gbps  (not to be trusted: measured 70s ago)" in line(status)
    fresh = line(reader(lambda: NetworkView(7, 0.005, 125e6, False)).read())
    assert "bandwidth 1Gbps" in fresh
    assert "ago" not in fresh


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("succeeded", status_pb2.STATE_SUCCEEDED),
        ("failed", status_pb2.STATE_FAILED),
        ("deadline", status_pb2.STATE_FAILED),
        ("interrupted", status_pb2.STATE_FAILED),
    ],
)
def test_the_end_is_what_the_launcher_wrote(run, reader, state, told):
    run.step(0)
    run.end(state, "" if state == "succeeded" else "rank 2 ended with signal SIGKILL")
    status = reader().read()
    assert status.state == told
    assert status.message == ("" if state == "succeeded" else "rank 2 ended with signal SIGKILL")
    assert status.step == 1


def test_a_network_that_is_not_measured_is_told_while_it_is_not(run, reader):
    kept = reader()
    run.step(0)
    with run.directory.decisions.open("a") as file:
        file.write(json.dumps({"record": "network", "time": 20.0, "problem": "all tests failed"}) + "\n")
    status = kept.read()
    assert status.message == "the network is not measured: all tests failed"
    assert line(status).endswith(": the network is not measured: all tests failed")
    with run.directory.decisions.open("a") as file:
        file.write(json.dumps({"record": "network", "time": 30.0, "problem": ""}) + "\n")
    assert kept.read().message == ""


def test_steps_that_were_dropped_are_told_while_it_runs_and_at_its_end(run, reader):
    kept = reader()
    run.step(0)
    run.step(1, finite=False, dropped_by="rank 1: weight")
    said = "1 of 2 steps were dropped, since a gradient was not finite (rank 1: weight)"
    assert kept.read().message == said
    run.end("succeeded", "")
    assert kept.read().message == said
