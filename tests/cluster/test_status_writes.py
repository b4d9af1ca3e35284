"""How often a status is written on a real API server while training tells something new at every look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from kit.silent_training import SilentTraining
from seen import Seen
from trimtab_api.trainer.v1 import status_pb2
from trimtab_operator.decisions.policies.progress import Progress
from trimtab_operator.decisions.policies.timers import SPREAD
from trimtab_operator.main import read_settings
from trimtab_operator.rank0.sanitize import Rank0Status
from trimtab_operator.reconcile.reconciler import Reconciler
from workbench import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]


class Chatty(SilentTraining):
    """Rank 0 has taken another step whenever it is asked."""

    def __init__(self):
        self.step = 0
        self.version = 1

    def latest(self, uid):
        self.step += 1
        plan = {"version": self.version, "name": "0.01/all-gather", "ratio": 0.01, "collective": "all-gather"}
        said = status_pb2.Status(step=self.step, loss=1 / self.step, plan=status_pb2.Plan(**plan, reason="why"))
        return Rank0Status.sanitize(said)


def test_figures_are_written_once_in_an_interval_and_a_plan_at_once(bench):
    bench.start("digits")
    training, now = Chatty(), datetime.now(UTC)
    flags = ["--namespace", "trimtab-system", "--netmon-image", "netmon.test/netmon:1", "--status-interval", "10"]
    settings = read_settings(flags)
    reconciler = Reconciler(bench.api, settings, Seen(bench), training, clock=lambda: now)
    begun = now

    written = []
    for _ in range(80):
        now += timedelta(seconds=1)
        reconciler.reconcile(f"{bench.namespace}/digits")
        status = bench.status("digits")
        if status.get("step") == training.step:
            written.append(datetime.fromisoformat(status["lastUpdateTime"]))
    assert written[0] - begun < timedelta(seconds=10 * (1 + SPREAD) + 2)
    gaps = [after - before for before, after in pairwise(written)]
    assert len(gaps) >= 4
    assert min(gaps) >= timedelta(seconds=10)

    training.version = 2
    now += timedelta(seconds=1)
    reconciler.reconcile(f"{bench.namespace}/digits")
    status = bench.status("digits")
    assert (status["plan"]["version"], status["step"]) == (2, training.step)
    assert bench.events("digits")["PlanChanged"].startswith("0.01/all-gather from step 0")


class Stalled(SilentTraining):
    """Rank 0 has been saying for ten minutes that it waits."""

    def latest(self, uid):
        return Rank0Status(state="Starting", step=0, message="waiting for rank 1 of 2 to join")

    def progress(self, uid):
        return Progress(seconds_without_progress=600.0)


def test_ranks_that_do_not_find_each_other_restart_together_and_the_status_names_who_is_missing(bench):
    bench.create("digits", progressDeadlineSeconds=600)
    bench.play_running(*bench.wait_for_pods("digits"))
    eventually(lambda: bench.condition("digits", "Started").get("status") == "True", "every worker is ready")
    settings = read_settings(["--namespace", "trimtab-system", "--netmon-image", "netmon.test/netmon:1"])
    Reconciler(bench.api, settings, Seen(bench), Stalled()).reconcile(f"{bench.namespace}/digits")
    assert len(bench.wait_for_pods("digits", attempt=1)) == 2
    status = bench.status("digits")
    assert (status["restarts"], status["disruptions"]) == (1, 0)
    why = "no first step for 600 s (spec.progressDeadlineSeconds); rank 0 last said: waiting for rank 1 of 2 to join"
    assert status["lastRestartReason"] == why
    assert bench.events("digits")["Restarting"] == f"restart 1: {why}"
